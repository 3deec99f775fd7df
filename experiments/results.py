"""What a run leaves: one JSON file, which appears whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from agentworld.demo.state import write_atomically
from agentworld.errors import ConfigError
from agentworld.records import digest
from experiments.cells import Cell, Plan

FOLDER = Path(__file__).parent / "results"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Held-out tasks, each tried once at temperature 0. `passed`: a 0 or 1 a task, in the order of the task set.

    `tasks`: digest of their ids in this order, so that only equal tasks are paired.
    """

    tasks: str
    passed: str

    @property
    def success(self) -> float:
        """The share that passed."""
        return self.passed.count("1") / len(self.passed)


class Result(msgspec.Struct, kw_only=True):
    """One run of a cell with a seed. `curve`: figures of each batch, its mean reward at temperature 1 among them.

    `figures`: of the whole run. `cpu_seconds`: of its processes but the engine, which runs share; the start's not
    included. `seconds`: of wall time.
    """

    cell: Cell
    seed: int
    plan: Plan
    before: Evaluation
    after: Evaluation
    curve: list[dict[str, Any]]
    figures: dict[str, float]
    cpu_seconds: float
    seconds: float
    software: dict[str, str]


def result_path(folder: Path, plan: Plan, cell: str, seed: int) -> Path:
    """Where the result of a run lies: those of as many batches are together."""
    return folder / f"{plan.iterations}-batches" / f"{cell}-seed{seed}.json"


def write_result(folder: Path, result: Result) -> Path:
    """Write the result; a reader sees all of it or nothing."""
    path = result_path(folder, result.plan, result.cell.name, result.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    return path


def read_results(folder: Path) -> list[Result]:
    """All results under a folder, by cell and seed; ConfigError names a file that is none."""
    found = []
    for path in sorted(folder.glob("*/*-seed*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Result))
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path} is no result: {error}", hint="Remove it and run its cell again") from None
    return sorted(found, key=lambda result: (result.cell.name, result.seed))


def same_start(results: Iterable[Result], cell: Cell, plan: Plan, before: Evaluation) -> None:
    """ConfigError where a result of this plan, task set and runtime began otherwise: gains from two starts are not
    compared. A start is evaluated once, so that equal starts have equal evaluations.
    """
    for other in results:
        alike = (other.plan, other.cell.lesson, other.cell.runtime) == (plan, cell.lesson, cell.runtime)
        if alike and other.before != before:
            raise ConfigError(
                f"{cell.name} begins with other weights than {other.cell.name} seed {other.seed} did: they passed "
                f"{before.success:.3f} and {other.before.success:.3f} of the held-out tasks",
                hint="Run all cells with one --work folder, which keeps the start, or give --results another folder",
            )


def tasks_digest(task_ids: list[str]) -> str:
    """Names a list of tasks in their order."""
    return digest(*(task_id.encode() for task_id in task_ids)).hex()[:16]
