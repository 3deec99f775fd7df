"""What is read of a version: each row with its trajectory and steps as they are in the pool, and its signals as they
were when it was frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from agentworld.pool.arrays import StepArrays
from agentworld.records import DatasetRow, Step, Trajectory


class FrozenTrajectory(msgspec.Struct, kw_only=True):
    """`steps`: those of the row in order, with messages, ids and log-probabilities, and with the frozen `reward`,
    `rewards` and `labels` in place of today's; `trajectory` likewise. `arrays`: by id, of the steps that have ids,
    where these were asked for as arrays, which share their memory, and not as lists on the steps.
    """

    row: DatasetRow
    trajectory: Trajectory
    steps: list[Step]
    arrays: Mapping[str, StepArrays] = {}


class SkippedRow(msgspec.Struct, frozen=True):
    """A row that cannot be read any more. `deleted`: its trajectory was deleted on request, at `at` for `reason`.
    `missing`: the trajectory is not there and nobody asked for that. `steps`: some of its steps are not there.
    """

    position: int
    trajectory_id: str
    split: str
    why: Literal["deleted", "missing", "steps"]
    reason: str | None = None
    at: float | None = None


Skipped = Callable[[SkippedRow], None]
