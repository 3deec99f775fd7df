"""A trajectory that ended elsewhere and is stored in one piece, and what became of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentworld.records.signals import Feedback, Reward
from agentworld.records.step import Step
from agentworld.records.trajectory import NewTrajectory, TerminalStatus

WholeOutcome = Literal["added", "known", "differs", "deleted", "refused"]


class WholeTrajectory(msgspec.Struct, kw_only=True):
    """`new.trajectory_id` is set, and so are the ids of steps; steps come in order, parents before their children.

    `parent_step_id` and `fork_reason` are stored as they are said. `rewards` and `feedback` are on the trajectory or on
    its steps. `origin`: what it was read from; kept as `metadata["import"]`, and `origin["digest"]` says whether
    another one is the same. `created_at`, `completed_at`: seconds since the epoch; 0 means now.
    """

    new: NewTrajectory
    steps: list[Step]
    status: TerminalStatus = "finished"
    rewards: list[Reward] = []
    feedback: list[Feedback] = []
    origin: dict[str, str] = {}
    created_at: float = 0.0
    completed_at: float = 0.0


class AddedTrajectory(msgspec.Struct, kw_only=True, frozen=True):
    """What became of one. `reason`: why it was refused; `excluded`: steps that are stored and excluded, by reason."""

    trajectory_id: str
    outcome: WholeOutcome
    reason: str | None = None
    steps: int = 0
    excluded: dict[str, int] = {}
