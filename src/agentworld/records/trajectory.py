"""One agent run, the task that it works on, its group, and the events that tell of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.records.step import Policy, Readiness

TrajectoryStatus = Literal["open", "finished", "failed", "truncated", "abandoned"]
TerminalStatus = Literal["finished", "failed", "truncated", "abandoned"]


GroupFailures = Literal["zero", "mask", "drop"]


class NewTrajectory(msgspec.Struct, kw_only=True):
    """What is known of a trajectory when it is created; creating it twice with the same id is one trajectory.

    `task` is free JSON that identifies the problem (`task_id`, `task_set`, prompt, reference, ...). `user`: whose data
    it is, so that all of one user's can be deleted. `priority`: what consumers that ask for order priority take first
    is higher.

    The first trajectory of a group that says so decides when it closes: once `group_size` rollouts have ended, or
    `group_timeout` seconds after its first one. Trajectories with the same `rollout_index` are attempts at one rollout,
    which has ended once one of them finished or was truncated, or once all have failed: begin the next attempt before
    the failed one is ended. `group_failures` says what becomes of rollouts that failed or were abandoned: `zero` serves
    them with the primary reward 0, `mask` serves them for the group's statistics but not for training, `drop` (where
    nothing is said) leaves them out.
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
    user: str | None = None
    priority: float = 0.0
    group_timeout: float | None = None
    group_failures: GroupFailures | None = None


class Trajectory(msgspec.Struct, kw_only=True):
    """One agent run. Times in seconds since the epoch; token counts include every step, flat.

    `sampled_tokens`: reply tokens that the policy sampled, over the steps that are not excluded. `masked`: served for
    its group's statistics, not to be trained on. `annotations`: names of the arrays that were put on it.
    """

    trajectory_id: str
    group_id: str | None = None
    group_size: int | None = None
    rollout_index: int | None = None
    attempt: int = 0
    task: dict[str, Any] | None = None
    agent: str | None = None
    channel: str = "train"
    metadata: dict[str, Any] = {}
    user: str | None = None
    priority: float = 0.0
    status: TrajectoryStatus = "open"
    rewards: dict[str, float] = {}
    reward: float | None = None
    labels: dict[str, Any] = {}
    annotations: list[str] = []
    masked: bool = False
    readiness: Readiness = "open"
    excluded_reason: str | None = None
    step_count: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    sampled_tokens: int = 0
    policy: Policy | None = None
    created_at: float = 0.0
    completed_at: float | None = None


class Event(msgspec.Struct, kw_only=True):
    """One entry of the pool's append-only sequence; `sequence` only grows, in commit order."""

    sequence: int
    kind: str
    at: float
    trajectory_id: str | None = None
    step_id: str | None = None
    data: dict[str, Any] = {}


class Group(msgspec.Struct, kw_only=True):
    """Rollouts of one task under one policy, as the pool counts them.

    `members`: trajectories. `ended`: rollouts that ended. `served`: trajectories that consumers may get now. `failures`
    is null where nobody has said, which is as drop. Once `state` is closed, by `size` or by `timeout`, what comes or
    ends later is excluded as `late_for_group`.
    """

    group_id: str
    channel: str
    size: int | None = None
    timeout_at: float | None = None
    failures: GroupFailures | None = None
    state: Literal["open", "closed"] = "open"
    closed_by: Literal["size", "timeout"] | None = None
    created_at: float = 0.0
    closed_at: float | None = None
    members: int = 0
    ended: int = 0
    served: int = 0
