"""Taking trajectories out of the in-memory store with all that hangs on them."""

from __future__ import annotations

from collections.abc import Iterable

from agentworld.pool import group_rules
from agentworld.pool.batch_items import without_targets
from agentworld.pool.keeping.events import kept_data
from agentworld.pool.memory import decisions, groups
from agentworld.pool.memory.append import count_content
from agentworld.pool.memory.leases import Leases
from agentworld.pool.memory.state import State
from agentworld.pool.memory.trajectories import forget_marks
from agentworld.pool.rules import staleness
from agentworld.pool.signal_rules import standing_comparisons
from agentworld.records import Trajectory, Unit


def remove(state: State, leases: Leases, trajectory_id: str) -> int | None:
    """Remove a trajectory and everything of it; returns how many steps it had, None where nothing was there."""
    steps = state.steps_of.pop(trajectory_id, [])
    there = state.trajectories.pop(trajectory_id, None)
    found = _drop_signals(state, leases, trajectory_id, set(steps))
    dead = [letter for letter in state.dead if letter.trajectory_id != trajectory_id and letter.step_id not in steps]
    found += len(state.dead) - len(dead)
    state.dead[:] = dead
    if there is None:
        return len(steps) if found else None
    for step_id in steps:
        del state.steps[step_id]
    state.declared.discard(trajectory_id)
    decisions.forget(state, trajectory_id, set(steps), there.group_id)
    forget_marks(state, trajectory_id)
    for exchange_id, (_, kept) in list(state.exchanges.items()):
        if kept.trajectory_id == trajectory_id:
            del state.exchanges[exchange_id]
    _drop_units(leases, {("trajectory", trajectory_id), *(("step", step_id) for step_id in steps)})
    if there.group_id is not None:
        groups.count_gone(state, there)
        groups.recount(state, there.group_id)
        if state.groups[there.group_id].members:
            groups.close_if_due(state, there.group_id)
        _drop_from_snapshots(leases, {trajectory_id, *steps}, {there.group_id, f"group:{there.group_id}"})
        if not state.groups[there.group_id].members:
            del state.groups[there.group_id]
            state.rollouts_gone.pop(there.group_id, None)
            _drop_units(leases, {("group", there.group_id), ("pair", f"group:{there.group_id}")})
    return len(steps)


def recount_content(state: State) -> None:
    """What the forests would hold of the steps that are there."""
    state.blocks.clear()
    state.nodes.clear()
    state.tool_sets.clear()
    state.tokens_in_tails = state.tokens_flat = 0
    for found in state.steps.values():
        count_content(state, found.prepared)


def scrub_events(state: State, trajectory_ids: set[str]) -> None:
    """Leave of these trajectories' events, and of those on deleted steps, what says nothing of what they held."""
    for event in state.events:
        # Signals that came before their step need not have said whose it is.
        of_step = event.trajectory_id is None and ("step", event.step_id) in state.tombstones
        if event.trajectory_id in trajectory_ids or of_step:
            event.data = kept_data(event.data)


def lag(state: State, there: Trajectory) -> int | None:
    """Versions that its policy lies behind the one that speaks."""
    return staleness(there.policy, state.policies.get(there.policy.model) if there.policy else None)


def is_leased(state: State, leases: Leases, there: Trajectory) -> bool:
    """Whether a running lease holds it, one of its steps, its group, or a pair that it is of."""
    units = _units_of(state, there)
    return any(
        (lease.unit, key) in units
        for lease in leases.batches.values()
        if leases.state(lease) == "leased"
        for key in lease.units
    )


def is_waiting(state: State, leases: Leases, there: Trajectory) -> bool:
    """Whether a consumer may still lease it: now, when a lease that ran out is taken back, or once its group closes."""
    units = _units_of(state, there)
    ran_out = (lease for lease in leases.batches.values() if lease.state != leases.state(lease))
    if any((lease.unit, key) in units for lease in ran_out for key in lease.units):
        return True
    group = None if there.group_id is None else state.groups[there.group_id]
    # An open group is served whole, with its failures too where it says so.
    runs = group is not None and group.state == "open" and group_rules.is_bounded(group.size, group.timeout_at)
    if group is not None and runs:
        channels = {there.channel, group.channel, *_step_channels(state, _members(state, there))}
        if any(unit in ("group", "pair") and channel in channels for _, unit, channel in leases.asked):
            return True
    return there.readiness in ("complete", "ready") and any(
        leases.delivery(consumer, unit, key, channel).state == "available"
        for consumer, unit, channel in leases.asked
        for kind, key in units
        if kind == unit and _is_in(state, there, unit, key, channel)
    )


def _is_in(state: State, there: Trajectory, unit: Unit, key: str, channel: str) -> bool:
    """Whether a unit that the trajectory is of has a step in the channel; comparisons are of each."""
    match unit:
        case "step":
            step = state.steps[key].step
            return step.channel == channel and step.excluded_reason is None
        case "trajectory":
            return channel in _step_channels(state, [there.trajectory_id])
        case _:
            return key.startswith("comparison:") or channel in _step_channels(state, _members(state, there))


def _step_channels(state: State, trajectory_ids: Iterable[str]) -> set[str]:
    steps = (state.steps[name].step for trajectory_id in trajectory_ids for name in state.steps_of[trajectory_id])
    return {step.channel for step in steps if step.excluded_reason is None}


def _members(state: State, there: Trajectory) -> list[str]:
    """The trajectories of its group."""
    return [t.trajectory_id for t in state.trajectories.values() if t.group_id == there.group_id]


def _units_of(state: State, there: Trajectory) -> set[tuple[str, str]]:
    units = {("trajectory", there.trajectory_id)}
    steps = state.steps_of[there.trajectory_id]
    units |= {("step", step_id) for step_id in steps}
    if there.group_id is not None:
        units |= {("group", there.group_id), ("pair", f"group:{there.group_id}")}
    sides = {there.trajectory_id, *steps}
    standing = {feedback.feedback_id for feedback in standing_comparisons(one for _, one in state.feedback.values())}
    for feedback_id, (_, feedback) in state.feedback.items():
        if feedback_id in standing and sides & {feedback.step_id, feedback.trajectory_id, feedback.other_id}:
            units.add(("pair", f"comparison:{feedback_id}"))
    return units


def _drop_signals(state: State, leases: Leases, trajectory_id: str, steps: set[str]) -> int:
    # Of signals that came before their step and named the trajectory.
    waiting = {target for kind, target in state.awaited if kind == "step"}
    never_came = {
        key[1]
        for key, reward in state.rewards.items()
        if key[0] == "step" and key[1] in waiting and reward.trajectory_id == trajectory_id
    }
    never_came |= {
        key[1]
        for key, (annotation, _) in state.annotations.items()
        if key[0] == "step" and key[1] in waiting and annotation.trajectory_id == trajectory_id
    }
    never_came |= {
        feedback.step_id
        for _, feedback in state.feedback.values()
        if feedback.step_id in waiting and feedback.trajectory_id == trajectory_id
    }
    targets = {("trajectory", trajectory_id), *(("step", step_id) for step_id in steps | never_came)}
    dropped = 0
    for key in [key for key in state.rewards if (key[0], key[1]) in targets]:
        del state.rewards[key]
        dropped += 1
    for name in [name for name in state.annotations if (name[0], name[1]) in targets]:
        del state.annotations[name]
        dropped += 1
    for target in [target for target in state.awaited if target in targets]:
        del state.awaited[target]
        dropped += 1
    for feedback_id, (kind, feedback) in list(state.feedback.items()):
        sides = {feedback.step_id if kind == "step" else feedback.trajectory_id, feedback.other_id}
        if any((kind, side) in targets for side in sides):
            del state.feedback[feedback_id]
            _drop_units(leases, {("pair", f"comparison:{feedback_id}")})
            dropped += 1
    return dropped


def _drop_units(leases: Leases, units: set[tuple[str, str]]) -> None:
    for key in [key for key in leases.deliveries if (key[1], key[2]) in units]:
        del leases.deliveries[key]
    for lease in leases.batches.values():
        for name in [name for name in lease.units if (lease.unit, name) in units]:
            del lease.units[name]


def _drop_from_snapshots(leases: Leases, ids: set[str], keys: set[str]) -> None:
    for lease in leases.batches.values():
        for key in keys & lease.units.keys():
            lease.units[key] = without_targets(lease.units[key], ids)
