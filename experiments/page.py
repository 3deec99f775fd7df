"""docs/experiments.md, made from the results and nothing else."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from agentworld.demo.state import write_atomically
from agentworld.errors import NotFoundError
from experiments.cells import BASE, CELLS, ITERATIONS_A_MINUTE
from experiments.plots import curves_plot, gains_plot
from experiments.reading import Finding, compared, findings
from experiments.results import read_results
from experiments.statistics import Interval
from experiments.wording import ABOUT, OPENING, TITLES

SEEDS = 3
ENOUGH_TASKS = 200
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
    found = findings(read)
    gains, curves = out.with_name(f"{out.stem}-gains.svg"), out.with_name(f"{out.stem}-curves.svg")
    return {out: _page(found, gains.name, curves.name), gains: gains_plot(found), curves: curves_plot(found)}


def _page(found: Sequence[Finding], gains: str, curves: str) -> str:
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
    parts = ["# Experiments", *(_wrapped(paragraph.format(**numbers)) for paragraph in OPENING), _budget(found)]
    parts += [*_summary(found), f"![Gains with intervals]({gains})", f"![Rewards by batch]({curves})"]
    for axis, title in TITLES.items():
        own = [each for each in found if each.cell.axis == axis]
        if own:
            parts += _axis(axis, title, own, found)
    return "\n\n".join([*parts, *_not_run(found)]) + "\n"


def _wrapped(text: str, bullet: str = "") -> str:
    """A paragraph in lines of COLUMNS; code and headings stay as they are."""
    if text.startswith(("    ", "#")):
        return text
    held = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _HOLD), bullet + text)  # No break within code.
    indent = " " * len(bullet)
    lines = textwrap.fill(held, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace(_HOLD, " ")


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(_wrapped(each, "- ") for each in sentences)


def _budget(found: Sequence[Finding]) -> str:
    runs = [result for each in found for result in each.results]
    cpu = sum(result.cpu_seconds for result in runs)
    software = runs[0].software
    return _wrapped(
        f"The {len(runs)} runs here took {cpu / 60:.0f} minutes of CPU time, {cpu / len(runs):.0f} s each, the start "
        f"and the engine that runs share not counted, on a machine with {software['cores']} cores that were busy "
        f"otherwise too (Python {software['python']}, torch {software['torch']}). That is a small budget: runs end "
        f"after {runs[0].plan.iterations} batches, so what is not told from the base here may be told "
        "from it in longer ones."
    )


def _summary(found: Sequence[Finding]) -> list[str]:
    """What was found and what was not, sentence by sentence from the intervals."""
    whole = [each for each in found if len(each.seeds) >= SEEDS]
    part = [each for each in found if len(each.seeds) < SEEDS]
    said = []
    for chosen, seeds in ((whole, f"With {SEEDS} seeds"), (part, f"With fewer than {SEEDS} seeds")):
        for sign, words in (
            (1, "a gain, the whole interval above 0"),
            (0, "no gain shown, as the interval holds 0"),
            (-1, "a loss, the whole interval below 0"),
        ):
            named = [f"{each.cell.name} {_shown(each.gain)}" for each in chosen if each.gain.sign == sign]
            if named:
                said.append(f"{seeds}, {words}: {', '.join(named)}.")
    beside = [(each.cell.name, each.beside_base) for each in whole if each.beside_base is not None]
    if beside:
        for sign, words in (
            (1, "More gain than the base"),
            (-1, "Less gain than the base"),
            (0, "Not told from the base"),
        ):
            named = [f"{name} {_shown(interval)}" for name, interval in beside if interval.sign == sign]
            said.append(f"{words}: {', '.join(named) or 'none'}.")
    return ["## What was found, and what was not", _listed(said)]


def _axis(axis: str, title: str, own: Sequence[Finding], found: Sequence[Finding]) -> list[str]:
    table = [
        "| cell | what | seeds | before | after | gain | beside base | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    parts = [f"## {title}", _wrapped(ABOUT[axis]), "\n".join([*table, *map(_row, own)])]
    more = _MORE[axis](own, found) if axis in _MORE else ""
    return [*parts, *([_wrapped(more)] if more else [])]


def _row(each: Finding) -> str:
    beside = "" if each.beside_base is None else _shown(each.beside_base)
    return (
        f"| `{each.cell.name}` | {each.cell.what} | {len(each.seeds)} | {each.before:.3f} | {each.after:.3f} "
        f"| {_shown(each.gain)} | {beside} | {each.cpu_seconds:.0f} |"
    )


def _shown(interval: Interval) -> str:
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def _computed(own: Sequence[Finding], found: Sequence[Finding]) -> str:
    """What merging saves."""
    said = []
    for each in [*(one for one in found if one.cell.name == BASE.name), *own]:
        points = [point for result in each.results for point in result.curve if "computed_tokens" in point]
        rows = sum(point["sequence_tokens"] for point in points)
        if rows:
            computed = sum(point["computed_tokens"] for point in points)
            said.append(f"`{each.cell.name}` computed {computed / rows:.2f} tokens for each token of its rows")
    return f"{', '.join(said)}; padding counts." if said else ""


def _kept_back(own: Sequence[Finding], found: Sequence[Finding]) -> str:
    said = []
    for each in own:
        kept = [point["kept_back"] for result in each.results for point in result.curve if "kept_back" in point]
        if kept:
            plan = each.results[0].plan
            share = sum(kept) / len(kept) / (plan.groups * plan.rollouts)
            said.append(f"In `{each.cell.name}` the policy kept back {share:.0%} of the rollouts.")
    results = {each.cell.name: each.results for each in own}
    if {"corrupted", "corrupted-curated"} <= results.keys():
        beside = compared(results["corrupted-curated"], results["corrupted"])
        if beside is not None:
            words = {1: "Curation gained more", 0: "No use of curation was shown", -1: "Curation gained less"}
            said.append(f"{words[beside.sign]}: `corrupted-curated` beside `corrupted` is {_shown(beside)}.")
    return " ".join(said)


def _other_ids(own: Sequence[Finding], found: Sequence[Finding]) -> str:
    shares = [result.figures["steps_with_other_ids"] for each in own for result in each.results]
    return (
        f"Of {sum(shares) / len(shares):.0%} of the steps the ids of the reply are not those that were sampled: "
        "Qwen3's template writes an empty `<think>` block before replies of the last turn, which the model never said."
    )


_MORE = {"merging": _computed, "curation": _kept_back, "tokens": _other_ids}


def _not_run(found: Sequence[Finding]) -> list[str]:
    """What there is to run and has no results."""
    seeds = {each.cell.name: len(each.seeds) for each in found}
    missing = {name: SEEDS - seeds.get(name, 0) for name in CELLS if seeds.get(name, 0) < SEEDS}
    plan = found[0].results[0].plan
    said = []
    if plan.evaluation_tasks < ENOUGH_TASKS:
        said.append(f"Evaluations of {ENOUGH_TASKS} tasks: these have {plan.evaluation_tasks}.")
    if missing:
        named = ", ".join(f"`{name}` ({'1 run' if runs == 1 else f'{runs} runs'})" for name, runs in missing.items())
        count = sum(missing.values())
        each = sum(one.cpu_seconds for one in found) / len(found)
        said.append(
            f"{named}: {count} in all, about {count * each / 60:.0f} minutes of CPU time by what the others took, "
            "and one or two more for the start of each task set."
        )
    lag = max(cell.lag for cell in CELLS.values())
    if plan.iterations <= lag:
        said.append(f"A lag of {lag} that moves: in runs of {plan.iterations} batches the start samples all of them.")
    said.append("Other models, other learning rates, longer runs.")
    return ["## What was not run", _listed(said)]
