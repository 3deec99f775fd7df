"""docs/experiments.md, made from the results and nothing else: the evidence first, then how it was come by."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from agentworld.demo.state import write_atomically
from agentworld.errors import NotFoundError
from experiments.cells import ITERATIONS_A_MINUTE
from experiments.plots import curves_plot, gains_plot
from experiments.reading import Finding, by_plan
from experiments.results import read_results
from experiments.sentences import MORE, SEEDS, answer, budget, by_axis, counted, not_run, shown
from experiments.wording import ABOUT, HOW, OPENING, READING, TITLES

COLUMNS = 120
_HOLD = "\x00"


def write_page(results: Path, out: Path) -> None:
    """Write the page and its plots beside it; NotFoundError where there are no results."""
    for path, text in pages(results, out).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())


def pages(results: Path, out: Path) -> dict[Path, str]:
    """The files that `write_page` writes, by path."""
    read = read_results(results)
    if not read:
        raise NotFoundError(f"there are no results in {results}", hint="python -m experiments run base")
    plans = by_plan(read)
    made, files = [], {}
    for place, found in enumerate(plans):
        suffix = "" if not place else f"-{found[0].results[0].plan.iterations}"
        gains, curves = (out.with_name(f"{out.stem}-{kind}{suffix}.svg") for kind in ("gains", "curves"))
        files |= {gains: gains_plot(found), curves: curves_plot(found)}
        made.append((found, gains.name, curves.name))
    return {out: _page(made), **files}


def _page(plans: Sequence[tuple[Sequence[Finding], str, str]]) -> str:
    (found, gains, curves), *others = plans
    plan = found[0].results[0].plan
    numbers = {
        "seeds": SEEDS,
        "groups": plan.groups,
        "rollouts": plan.rollouts,
        "iterations": plan.iterations,
        "tasks": plan.evaluation_tasks,
        "minutes": plan.iterations / ITERATIONS_A_MINUTE,
        "per_minute": ITERATIONS_A_MINUTE,
    }
    parts = ["# Experiments", _wrapped(answer(found)), _wrapped(OPENING.format(**numbers)), "## Results"]
    parts += [_table(found), f"![Gains with intervals]({gains})", _wrapped(READING), _listed(by_axis(found))]
    parts += [f"![Rewards by batch]({curves})"]
    for own, own_gains, own_curves in others:
        parts += _other_budget(own, own_gains, own_curves)
    parts += ["## Axis by axis", *_axes(found)]
    parts += ["## How", *(_wrapped(paragraph.format(**numbers)) for paragraph in HOW)]
    parts += [_wrapped(" ".join(budget(own) for own, _, _ in plans)), "## What was not run"]
    parts += [_listed(not_run(found, [own[0].results[0].plan.iterations for own, _, _ in plans]))]
    return "\n\n".join(parts) + "\n"


def _other_budget(found: Sequence[Finding], gains: str, curves: str) -> list[str]:
    plan = found[0].results[0].plan
    parts = [
        f"## Runs of {counted(plan.iterations, 'batch', 'batches')}",
        _wrapped(answer(found)),
        _table(found),
        _listed(by_axis(found)),
    ]
    more = [text for axis, own in _of_axes(found) if axis in MORE and (text := MORE[axis](own, found))]
    return [*parts, *map(_wrapped, more), f"![Gains with intervals]({gains})", f"![Rewards by batch]({curves})"]


def _of_axes(found: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """Findings by axis, in the order of the page, as far as there are any."""
    of_axes = [(axis, [each for each in found if each.cell.axis == axis]) for axis in TITLES]
    return [(axis, own) for axis, own in of_axes if own]


def _axes(found: Sequence[Finding]) -> list[str]:
    """Of each axis, what it is and what there is to say beside the table."""
    parts = []
    for axis, own in _of_axes(found):
        more = MORE[axis](own, found) if axis in MORE else ""
        parts += [_wrapped(f"**{TITLES[axis]}.** {ABOUT[axis]}"), *([_wrapped(more)] if more else [])]
    return parts


def _table(found: Sequence[Finding]) -> str:
    """A row a cell, by axis; the axis stands at its first."""
    lines = [
        "| axis | cell | what differs | seeds | before | after | gain | beside base | sampled |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for axis, own in _of_axes(found):
        for place, each in enumerate(own):
            beside = "" if each.beside_base is None else shown(each.beside_base, strong=True)
            first, last = each.curve[0], each.curve[-1]
            lines.append(
                f"| {'' if place else axis} | `{each.cell.name}` | {each.cell.what} | {len(each.seeds)} "
                f"| {each.before:.3f} | {each.after:.3f} | {shown(each.gain, strong=True)} | {beside} "
                f"| {first:.2f} to {last:.2f} |"
            )
    return "\n".join(lines)


def _wrapped(text: str, bullet: str = "") -> str:
    """A paragraph in lines of COLUMNS; code stays as it is."""
    if text.startswith("    "):
        return text
    held = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _HOLD), bullet + text)  # No break within code.
    indent = " " * len(bullet)
    lines = textwrap.fill(held, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace(_HOLD, " ")


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(_wrapped(each, "- ") for each in sentences)
