"""Creating and completing trajectories in memory."""

from __future__ import annotations

from agentworld.pool import rules
from agentworld.pool.group_rules import LATE
from agentworld.pool.memory import groups, reviews
from agentworld.pool.memory.signals import apply_awaited, check_not_deleted
from agentworld.pool.memory.state import State, copied
from agentworld.records import NewTrajectory, Reward, TerminalStatus, Trajectory


def create(state: State, trajectory_id: str, new: NewTrajectory, *, at: float | None = None) -> Trajectory:
    """Create, declare what a step implied, or check that the same is there; returns the live record.

    `at`: when it began, where that was not now.
    """
    there = state.trajectories.get(trajectory_id)
    if there is None:
        there = imply(state, trajectory_id, new, at=at)
    elif trajectory_id in state.declared:
        rules.check_same_creation(new, there)
        if new.group_id is not None:
            groups.plan(state, new.group_id, new)
    else:
        _declare(state, there, new)
    state.declared.add(trajectory_id)
    return there


def imply(state: State, trajectory_id: str, new: NewTrajectory, *, at: float | None = None) -> Trajectory:
    """Add an open trajectory that is not there; returns the live record."""
    check_not_deleted(state, "trajectory", trajectory_id, "trajectory_id")
    if new.user is not None:
        check_not_deleted(state, "user", new.user, "user")
    late = new.group_id is not None and groups.joined_group(state, new.group_id, new).state == "closed"
    there = state.add_trajectory(new, trajectory_id)
    if at is not None:
        there.created_at = at
    if late:
        there.excluded_reason, there.readiness = LATE, "excluded"
    if new.group_id is not None:
        groups.recount(state, new.group_id)
    apply_awaited(state, "trajectory", [trajectory_id])
    return there


def complete(
    state: State, trajectory_id: str, status: TerminalStatus, reward: float | None, *, at: float | None = None
) -> Trajectory:
    """End a trajectory once, with its reward; returns the live record. `at`: when, where that was not now."""
    if trajectory_id not in state.trajectories:
        check_not_deleted(state, "trajectory", trajectory_id, "trajectory_id")
    there = state.trajectory(trajectory_id)
    signal = Reward(value=reward, trajectory_id=trajectory_id, source="complete") if reward is not None else None
    if signal is not None:
        rules.check_reward(signal, "reward")
    ends = rules.check_completion(there, status)
    if ends:
        if there.group_id is not None and groups.current_group(state, there.group_id).state == "closed":
            reasons = [there.excluded_reason] if there.excluded_reason else []
            there.excluded_reason = rules.joined_reasons([*reasons, LATE])
        there.status, there.completed_at = status, state.clock() if at is None else at
        forget_marks(state, trajectory_id)
        state.add_event("trajectory.completed", trajectory_id, data={"status": status})
    rewarded = signal is not None and state.keep_reward("trajectory", trajectory_id, signal)
    if signal is not None and rewarded:
        state.apply_reward("trajectory", trajectory_id, signal)
    if ends or rewarded:
        # Once both are known, so that a group that closes now sees the reward.
        groups.settle(state, there)
    return there


def forget_marks(state: State, trajectory_id: str) -> None:
    """Drop the marks of a trajectory that takes no calls any more."""
    for place in [place for place in state.marks if place[1] == trajectory_id]:
        del state.marks[place]


def _sampled(state: State, trajectory_id: str, channel: str) -> int:
    """Tokens that were sampled in its steps of the channel, but for those that are excluded."""
    steps = [state.steps[step_id] for step_id in state.steps_of[trajectory_id]]
    return sum(
        one.prepared.sampled for one in steps if one.step.channel == channel and one.step.excluded_reason is None
    )


def _declare(state: State, there: Trajectory, new: NewTrajectory) -> None:
    """Give a trajectory that a step implied its settings, which may put it into a group, or another one."""
    if new.user is not None:
        check_not_deleted(state, "user", new.user, "user")
    before = there.group_id
    late = there.excluded_reason
    if new.group_id is not None:
        group = groups.joined_group(state, new.group_id, new)
        if new.group_id != before:
            late = LATE if group.state == "closed" else None
    elif before is not None:
        late = None
    if new.channel != there.channel:
        state.move_events(there.trajectory_id, new.channel)
        reviews.move(state, there.trajectory_id, new.channel)
        there.sampled_tokens = _sampled(state, there.trajectory_id, new.channel)
    mine = copied(new)
    for name in rules.CREATION_FIELDS:
        setattr(there, name, getattr(mine, name))
    there.excluded_reason = late
    groups.settle(state, there)
    if before not in (None, there.group_id):
        groups.recount(state, before)
