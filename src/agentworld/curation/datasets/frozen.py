"""What is read of a version: each row with its trajectory and steps as they are in the pool, and its signals as they
were when it was frozen."""

from __future__ import annotations

import msgspec

from agentworld.records import DatasetRow, Step, Trajectory


class FrozenTrajectory(msgspec.Struct, kw_only=True):
    """`steps`: those of the row in order, with messages, ids and log-probabilities, and with the frozen `reward`,
    `rewards` and `labels` in place of today's; `trajectory` likewise.
    """

    row: DatasetRow
    trajectory: Trajectory
    steps: list[Step]
