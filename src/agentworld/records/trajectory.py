"""One agent run, the task that it works on, and the signals that are put on it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.records.step import Policy, Readiness

TrajectoryStatus = Literal["open", "finished", "failed", "truncated", "abandoned"]
TerminalStatus = Literal["finished", "failed", "truncated", "abandoned"]


class NewTrajectory(msgspec.Struct, kw_only=True):
    """What is known of a trajectory when it is created; creating it twice with the same id is one trajectory.

    `task` is free JSON that identifies the problem (`task_id`, `task_set`, prompt, reference, ...).
    """

    trajectory_id: str | None = None
    group_id: str | None = None
    group_size: int | None = None
    rollout_index: int | None = None
    attempt: int = 0
    task: dict[str, Any] | None = None
    agent: str | None = None
    channel: str = "train"
    metadata: dict[str, Any] = {}


class Trajectory(msgspec.Struct, kw_only=True):
    """One agent run. Times in seconds since the epoch; token counts include every step, flat."""

    trajectory_id: str
    group_id: str | None = None
    group_size: int | None = None
    rollout_index: int | None = None
    attempt: int = 0
    task: dict[str, Any] | None = None
    agent: str | None = None
    channel: str = "train"
    metadata: dict[str, Any] = {}
    status: TrajectoryStatus = "open"
    rewards: dict[str, float] = {}
    reward: float | None = None
    readiness: Readiness = "open"
    excluded_reason: str | None = None
    step_count: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    policy: Policy | None = None
    created_at: float = 0.0
    completed_at: float | None = None


class Reward(msgspec.Struct, kw_only=True):
    """A named, sourced value on a trajectory or on one of its steps; the name `reward` is the primary one.

    Setting the same name from the same source again replaces the value. Absent is not zero.
    """

    value: float
    trajectory_id: str | None = None
    step_id: str | None = None
    name: str = "reward"
    source: str = "api"
    details: dict[str, Any] | None = None
    created_at: float = 0.0


class Event(msgspec.Struct, kw_only=True):
    """One entry of the pool's append-only sequence; `sequence` only grows, in commit order."""

    sequence: int
    kind: str
    at: float
    trajectory_id: str | None = None
    step_id: str | None = None
    data: dict[str, Any] = {}
