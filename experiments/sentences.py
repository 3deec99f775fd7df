"""What the page says in words, each sentence from intervals and figures of the results."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.cells import BASE, CELLS
from experiments.reading import Finding, compared
from experiments.statistics import Interval
from experiments.wording import TITLES

SEEDS = 3
ENOUGH_TASKS = 200


def shown(interval: Interval, strong: bool = False) -> str:
    """Mean and bounds; `strong`: bold where all of it is on one side of 0."""
    mean = f"{interval.mean:+.3f}"
    return f"{f'**{mean}**' if strong and interval.sign else mean} [{interval.low:+.3f}, {interval.high:+.3f}]"


def counted(count: int, one: str, more: str) -> str:
    """The count with its noun."""
    return f"{count} {one if count == 1 else more}"


def answer(found: Sequence[Finding]) -> str:
    """The question of the page and its answer: the base, and how many of the other cells gained as it did."""
    whole, said = [each for each in found if len(each.seeds) >= SEEDS], []
    batches = counted(found[0].results[0].plan.iterations, "batch", "batches")
    for each in whole:
        if each.cell.name == BASE.name:
            words = {1: "Yes", 0: "That was not shown", -1: "No"}[each.gain.sign]
            said.append(
                f"{words}: in {batches} the base, {each.cell.what}, went from {each.before:.3f} to {each.after:.3f} of "
                f"{each.tasks} held-out tasks, {shown(each.gain)} over {len(each.seeds)} seeds."
            )
    others = [each for each in whole if each.cell.name != BASE.name]
    if others:
        gained, lost, neither = ([each for each in others if each.gain.sign == sign] for sign in (1, -1, 0))
        names = f" ({', '.join(map(_named, lost))})" if lost else ""
        cells = counted(len(others), "other cell", "other cells")
        said.append(
            f"Of {cells} with {SEEDS} seeds {len(gained)} gained (the whole 95% interval is above 0), "
            f"{len(lost)} lost{names}, and {len(neither)} showed neither."
        )
    return " ".join(["Does data from the factory train agents?", *(said or [f"No cell has {SEEDS} seeds."])])


def by_axis(found: Sequence[Finding]) -> list[str]:
    """A sentence or two an axis: who gained, who did not, and who is told from the base."""
    said = []
    for axis, title in TITLES.items():
        own = [each for each in found if each.cell.axis == axis and each.cell.name != BASE.name]
        parts = [
            f"{words}: {', '.join(named)}"
            for sign, words in ((1, "a gain"), (0, "no gain shown"), (-1, "a loss"))
            if (named := [_named(each) for each in own if each.gain.sign == sign])
        ]
        if not parts:
            continue
        beside = [
            f"{words} than the base: {', '.join(named)}"
            for sign, words in ((1, "more"), (-1, "less"))
            if (named := [_named(each) for each in own if each.beside_base and each.beside_base.sign == sign])
        ]
        untold = any(each.beside_base is not None and not each.beside_base.sign for each in own)
        if untold:
            beside.append("the others are not told from the base" if beside else "none is told from the base")
        said.append(f"**{title}**: {'; '.join([*parts, *beside])}.")
    return said


def _named(each: Finding) -> str:
    """The cell, and of how few seeds it is."""
    count = len(each.seeds)
    return f"`{each.cell.name}`" + ("" if count >= SEEDS else f" ({counted(count, 'seed', 'seeds')})")


def budget(found: Sequence[Finding]) -> str:
    """What was spent on the runs of one plan."""
    runs = [result for each in found for result in each.results]
    cpu = sum(result.cpu_seconds for result in runs)
    software = runs[0].software
    count, batches = counted(len(runs), "run", "runs"), counted(runs[0].plan.iterations, "batch", "batches")
    return (
        f"{count} of {batches} took {cpu / 60:.0f} minutes of CPU time, {cpu / len(runs):.0f} s each, the start and "
        f"the engine that runs share not counted, on a machine with {software['cores']} cores that were busy otherwise "
        f"too (Python {software['python']}, torch {software['torch']})."
    )


def computed(own: Sequence[Finding], found: Sequence[Finding]) -> str:
    """What merging saves."""
    said = []
    for each in [*(one for one in found if one.cell.name == BASE.name), *own]:
        points = [point for result in each.results for point in result.curve if "computed_tokens" in point]
        rows = sum(point["sequence_tokens"] for point in points)
        if rows:
            total = sum(point["computed_tokens"] for point in points)
            said.append(f"`{each.cell.name}` computed {total / rows:.2f} tokens for each token of its rows")
    return f"{', '.join(said)}; padding counts." if said else ""


def kept_back(own: Sequence[Finding], found: Sequence[Finding]) -> str:
    """How much curation kept back, and whether it helped."""
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
            said.append(f"{words[beside.sign]}: `corrupted-curated` beside `corrupted` is {shown(beside)}.")
    return " ".join(said)


def corrections(own: Sequence[Finding], found: Sequence[Finding]) -> str:
    """Of each lag, what the correction was worth."""
    results = {each.cell.name: each.results for each in own}
    said = []
    for name, corrected in results.items():
        if f"{name}-uncorrected" in results:
            beside = compared(corrected, results[f"{name}-uncorrected"])
            if beside is not None:
                words = {1: "helps", 0: "is not told from none", -1: "harms"}[beside.sign]
                said.append(f"At `{name}` the correction {words}: {shown(beside)} beside none.")
    return " ".join(said)


def other_ids(own: Sequence[Finding], found: Sequence[Finding]) -> str:
    """How much of what is trained on was never sampled."""
    shares = [result.figures["steps_with_other_ids"] for each in own for result in each.results]
    return (
        f"Of {sum(shares) / len(shares):.0%} of the steps the ids of the reply are not those that were sampled: "
        "Qwen3's template writes an empty `<think>` block before replies of the last turn, which the model never said."
    )


MORE = {"merging": computed, "curation": kept_back, "staleness": corrections, "tokens": other_ids}
"""Of an axis, what there is to say beside its gains: from its own findings and all of the plan."""


def not_run(found: Sequence[Finding], budgets: Sequence[int]) -> list[str]:
    """What there is to run and has no results at the first budget; `budgets`: all, in batches."""
    seeds = {each.cell.name: len(each.seeds) for each in found}
    missing = {name: SEEDS - seeds.get(name, 0) for name in CELLS if seeds.get(name, 0) < SEEDS}
    plan = found[0].results[0].plan
    said = []
    if plan.evaluation_tasks < ENOUGH_TASKS:
        said.append(f"Evaluations of {ENOUGH_TASKS} tasks: these have {plan.evaluation_tasks}.")
    if missing:
        named = ", ".join(f"`{name}` ({counted(runs, 'run', 'runs')})" for name, runs in missing.items())
        count = sum(missing.values())
        each = sum(one.cpu_seconds for one in found) / len(found)
        said.append(
            f"{named}: {count} in all, about {count * each / 60:.0f} minutes of CPU time by what the others took, "
            "and one or two more for the start of each task set."
        )
    lag = max(cell.lag for cell in CELLS.values())
    if max(budgets) <= lag:
        said.append(f"A lag of {lag} that moves: in runs of {max(budgets)} batches the start samples all of them.")
    said.append(
        f"Other models, other learning rates, runs of more than {max(budgets)} batches: what is not told from the base "
        "here may be told from it in longer ones."
    )
    return said
