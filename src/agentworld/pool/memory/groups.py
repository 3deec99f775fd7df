"""Groups of the in-memory store: opened with their first trajectory, counted and closed by the writes."""

from __future__ import annotations

import msgspec

from agentworld.pool import group_rules, rules
from agentworld.pool.group_rules import Member, rollout_ended, serves
from agentworld.pool.memory.decisions import redecide
from agentworld.pool.memory.state import State
from agentworld.records import Group, NewTrajectory, Reward, Trajectory


def plan(state: State, group_id: str, new: NewTrajectory) -> Group:
    """The group that `new` joins, opened where it is not there; ConflictError where it was planned otherwise."""
    there = state.groups.get(group_id)
    planned = group_rules.new_group(group_id, new, state.clock()) if there is None else group_rules.adopted(there, new)
    state.groups[group_id] = planned
    return planned


def joined_group(state: State, group_id: str, new: NewTrajectory) -> Group:
    """The group that a trajectory is about to join, closed first where its time is over."""
    plan(state, group_id, new)
    return current_group(state, group_id)


def current_group(state: State, group_id: str) -> Group:
    """The group as it stands now, closed first where its time is over."""
    close_if_due(state, group_id)
    return state.groups[group_id]


def settle(state: State, there: Trajectory) -> None:
    """Derive the readiness of a trajectory, and what follows for its group."""
    there.reward = there.rewards.get(rules.PRIMARY)
    if state.curations:
        redecide(state, there)
    group = state.groups.get(there.group_id) if there.group_id is not None else None
    there.readiness = rules.trajectory_readiness(
        there.status, there.reward is not None, there.excluded_reason, state.is_admitted(there)
    )
    if group is not None:
        recount(state, group.group_id)
        close_if_due(state, group.group_id)


def count_gone(state: State, gone: Trajectory) -> None:
    """Count a rollout that was deleted with all of its attempts as ended, where its group waits for so many."""
    group_id = gone.group_id or ""
    group = state.groups[group_id]
    if group.state == "closed" or group.size is None:
        return
    others = [one.rollout_index for one in state.trajectories.values() if one.group_id == group_id]
    if gone.rollout_index is None or gone.rollout_index not in others:
        state.rollouts_gone[group_id] = state.rollouts_gone.get(group_id, 0) + 1


def recount(state: State, group_id: str) -> None:
    """The numbers of a group, from its members."""
    members = _members(state, group_id)
    rollouts: dict[object, list[Member]] = {}
    for member in members:
        alone = member.rollout_index is None
        rollouts.setdefault((alone, member.key if alone else member.rollout_index), []).append(member)
    state.groups[group_id] = msgspec.structs.replace(
        state.groups[group_id],
        members=len(members),
        ended=state.rollouts_gone.get(group_id, 0)
        + sum(rollout_ended([member.status for member in attempts]) for attempts in rollouts.values()),
        served=sum(serves(member.readiness) for member in members),
    )


def close_due(state: State) -> int:
    """Close the groups whose time is over, in the order in which it was; returns how many."""
    due = [
        (group.timeout_at, group_id)
        for group_id, group in state.groups.items()
        if group.state == "open" and group.timeout_at is not None
    ]
    return sum(close_if_due(state, group_id) for _, group_id in sorted(due, key=lambda each: each[0]))


def close_if_due(state: State, group_id: str) -> bool:
    """Close the group where its size is reached or its time is over."""
    group = state.groups[group_id]
    now = state.clock()
    reason = group_rules.close_reason(group, now)
    if reason is None:
        return False
    closed = msgspec.structs.replace(group, state="closed", closed_by=reason, closed_at=now)
    state.groups[group_id] = closed
    if closed.failures in ("zero", "mask"):
        _serve_failures(state, closed)
    recount(state, group_id)
    closed = state.groups[group_id]
    data = {"group_id": group_id, "by": reason, "ended": closed.ended, "served": closed.served}
    state.add_event("group.closed", data=data, channel=group.channel)
    return True


def _serve_failures(state: State, group: Group) -> None:
    standing, retried = group_rules.failures_at_close(_members(state, group.group_id))
    for member in retried:
        state.trajectories[str(member.key)].excluded_reason = group_rules.RETRIED
    for member in standing:
        there = state.trajectories[str(member.key)]
        there.masked = group.failures == "mask"
        if group.failures == "zero" or there.reward is None:
            reward = Reward(value=0.0, trajectory_id=there.trajectory_id, source=group_rules.SOURCE)
            if state.keep_reward("trajectory", there.trajectory_id, reward):
                state.apply_reward("trajectory", there.trajectory_id, reward)
        settle(state, there)


def _members(state: State, group_id: str) -> list[Member]:
    return [
        Member(t.trajectory_id, t.group_id, t.rollout_index, t.attempt, t.status, t.readiness, t.excluded_reason)
        for t in state.trajectories.values()
        if t.group_id == group_id
    ]
