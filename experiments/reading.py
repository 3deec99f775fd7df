"""What the results of a cell say together: success before and after, and gains with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.errors import ConfigError
from experiments.cells import BASE, CELLS, Cell
from experiments.results import Evaluation, Result, same_start
from experiments.statistics import Interval, paired_interval


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cell over its seeds. `beside_base`: how much more it gained than the base, on the same tasks and seeds; None
    for the base, and where tasks differ. `gains`: of each seed. `cpu_seconds`: mean of a run.
    """

    cell: Cell
    seeds: tuple[int, ...]
    tasks: int
    before: float
    after: float
    gain: Interval
    gains: tuple[float, ...]
    beside_base: Interval | None
    cpu_seconds: float
    results: tuple[Result, ...]

    @property
    def curve(self) -> list[float]:
        """The mean reward of the rollouts of each batch, mean over seeds."""
        curves = [[point["reward"] for point in result.curve] for result in self.results]
        return [sum(values) / len(values) for values in zip(*curves, strict=True)]


def by_plan(results: Sequence[Result]) -> list[list[Finding]]:
    """The findings of each plan, that with the most runs first."""
    plans: dict[bytes, list[Result]] = {}
    for result in results:
        plans.setdefault(msgspec.json.encode(result.plan), []).append(result)
    ordered = sorted(plans.values(), key=lambda own: (-len(own), -own[0].plan.iterations))
    return [findings(own) for own in ordered]


def findings(results: Sequence[Result]) -> list[Finding]:
    """Of each cell that has results, in the order of CELLS. ConfigError where plans or starts differ: they cannot be
    compared.
    """
    plans = {msgspec.json.encode(result.plan) for result in results}
    if len(plans) > 1:
        raise ConfigError(f"the results are of {len(plans)} plans", hint="Read those of each plan by themselves")
    for result in results:
        same_start(results, result.cell, result.plan, result.before)
    by_cell = {name: [result for result in results if result.cell.name == name] for name in CELLS}
    base = {result.seed: result for result in by_cell[BASE.name]}
    return [_finding(own, base) for own in by_cell.values() if own]


def _finding(own: Sequence[Result], base: dict[int, Result]) -> Finding:
    cell = CELLS[own[0].cell.name]
    for result in own:
        if msgspec.structs.replace(result.cell, what=cell.what) != cell:
            raise ConfigError(
                f"{cell.name} seed {result.seed} was run when the cell was another", hint="Remove it and run it again"
            )
    changes = np.stack([_change(result) for result in own])
    beside = None if cell.name == BASE.name else compared(own, list(base.values()))
    return Finding(
        cell=cell,
        seeds=tuple(result.seed for result in own),
        tasks=changes.shape[1],
        before=float(np.mean([result.before.success for result in own])),
        after=float(np.mean([result.after.success for result in own])),
        gain=paired_interval(changes),
        gains=tuple(float(change.mean()) for change in changes),
        beside_base=beside,
        cpu_seconds=float(np.mean([result.cpu_seconds for result in own])),
        results=tuple(own),
    )


def compared(own: Sequence[Result], others: Sequence[Result]) -> Interval | None:
    """How much more `own` gained than `others`, by seed and task; None without seeds in common, or with other tasks."""
    by_seed = {result.seed: result for result in others}
    pairs = [(result, by_seed[result.seed]) for result in own if result.seed in by_seed]
    if not pairs or not all(_same_tasks(one, other) for one, other in pairs):
        return None
    return paired_interval(np.stack([_change(one) - _change(other) for one, other in pairs]))


def _change(result: Result) -> npt.NDArray[np.float64]:
    """After less before of each held-out task: -1, 0 or 1, [tasks]."""
    if result.before.tasks != result.after.tasks:
        raise ConfigError(f"{result.cell.name} seed {result.seed} was evaluated on other tasks before and after")
    return _passed(result.after) - _passed(result.before)


def _passed(evaluation: Evaluation) -> npt.NDArray[np.float64]:
    return np.array([float(each) for each in evaluation.passed])


def _same_tasks(one: Result, other: Result) -> bool:
    return one.before.tasks == other.before.tasks
