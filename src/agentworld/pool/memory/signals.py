"""Rewards, feedback and annotations in memory: on a target that is there, or waiting for one that is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from agentworld.errors import GoneError, InvalidRequestError
from agentworld.pool.exact_text import stored_json
from agentworld.pool.memory import groups
from agentworld.pool.memory.state import State
from agentworld.pool.results import DeadLetter, SignalsResult
from agentworld.pool.signal_rules import (
    CheckedSignal,
    Target,
    length_fault,
    other_feedback,
    other_trajectory,
    same_feedback,
)
from agentworld.records import Annotation, Feedback, Reward, Step, Trajectory


def add_signals(state: State, signals: Sequence[CheckedSignal]) -> SignalsResult:
    """Store signals and put them on their targets; those whose target is not there wait for it."""
    sent: dict[str, Feedback] = {}
    for signal in signals:
        _check(state, signal, sent)
    changed = reached = 0
    waiting: dict[str, None] = {}
    to_settle: dict[str, None] = {}
    for signal in signals:
        there = _target(state, signal.target, signal.target_id)
        if there is None:
            waiting[signal.target_id] = None
        else:
            reached += 1
        if not _keep(state, signal):
            continue
        changed += 1
        if there is None:
            state.awaited.setdefault((signal.target, signal.target_id), state.clock())
            data = {"kind": signal.kind}
            state.add_event("signal.waiting", signal.record.trajectory_id, signal.record.step_id, data)
        elif _apply(state, signal.target, signal.target_id, signal.record):
            to_settle[there.trajectory_id] = None
    for trajectory_id in to_settle:
        groups.settle(state, state.trajectories[trajectory_id])
    return SignalsResult(changed, reached, list(waiting))


def apply_awaited(state: State, target: Target, ids: Iterable[str]) -> None:
    """Put what waited for these new steps or trajectories on their records; what contradicts them is a dead letter."""
    for target_id in ids:
        there = _target(state, target, target_id)
        if there is None or state.awaited.pop((target, target_id), None) is None:
            continue
        _arrive(state, target, target_id, there)
        groups.settle(state, state.trajectories[there.trajectory_id])


def check_not_deleted(state: State, kind: Literal["step", "trajectory", "user"], target_id: str, path: str) -> None:
    """GoneError where the step or trajectory, or all of the user, was deleted on request."""
    if (kind, target_id) in state.tombstones:
        reason = state.tombstones[kind, target_id]
        why = f" ({reason})" if reason else ""
        raise GoneError(f"{kind} {target_id!r} was deleted{why}", path=path, hint="Use a new id")


def _target(state: State, kind: Target, target_id: str) -> Step | Trajectory | None:
    if kind == "trajectory":
        return state.trajectories.get(target_id)
    found = state.steps.get(target_id)
    return found.step if found is not None else None


def _check(state: State, signal: CheckedSignal, sent: dict[str, Feedback]) -> None:
    there = _target(state, signal.target, signal.target_id)
    record = signal.record
    if there is None:
        check_not_deleted(state, signal.target, signal.target_id, signal.path)
        if record.trajectory_id is not None:
            check_not_deleted(state, "trajectory", record.trajectory_id, signal.path)
    elif isinstance(there, Step):
        if record.trajectory_id not in (None, there.trajectory_id):
            raise other_trajectory(signal.target_id, record.trajectory_id, signal.path)
        if isinstance(record, Annotation):
            fault = length_fault(record.shape, record.per_token, there.response_length)
            if fault is not None:
                hint = "Set per_token to false where it is about the step"
                raise InvalidRequestError(fault, path=f"{signal.path}.values", hint=hint)
    if isinstance(record, Feedback):
        feedback_id = record.feedback_id or ""
        known = sent.get(feedback_id)
        if known is None and feedback_id in state.feedback:
            known = state.feedback[feedback_id][1]
        if known is not None and not same_feedback(known, record):
            raise other_feedback(feedback_id, signal.path)
        sent[feedback_id] = record


def _keep(state: State, signal: CheckedSignal) -> bool:
    record = signal.record
    if isinstance(record, Reward):
        return state.keep_reward(signal.target, signal.target_id, record)
    stamped = msgspec.structs.replace(record, created_at=record.created_at or state.clock())
    if isinstance(stamped, Feedback):
        feedback_id = stamped.feedback_id or ""
        if feedback_id in state.feedback:
            return False
        state.feedback[feedback_id] = (signal.target, stamped)
        state.last_feedback += 1
        state.feedback_numbers[feedback_id] = state.last_feedback
        return True
    assert signal.array is not None
    key = (signal.target, signal.target_id, stamped.name)
    known = state.annotations.pop(key, None)
    if known is not None and known[1] == signal.array and _said(known[0]) == _said(stamped):
        state.annotations[key] = known
        return False
    state.annotations[key] = (stamped, signal.array)
    return True


def _said(about: Annotation) -> tuple[str, bool]:
    return about.source, about.per_token


def _apply(state: State, kind: Target, target_id: str, record: Reward | Feedback | Annotation) -> bool:
    """Put a stored signal on its target; whether anything to serve by has changed."""
    there = _target(state, kind, target_id)
    assert there is not None
    step_id = target_id if kind == "step" else None
    if isinstance(record, Reward):
        state.apply_reward(kind, target_id, record)
    elif isinstance(record, Annotation):
        there.annotations = sorted({*there.annotations, record.name})
        data: dict[str, Any] = {"name": record.name, "source": record.source, "dtype": record.dtype}
        state.add_event("annotation.set", there.trajectory_id, step_id, {**data, "shape": list(record.shape)})
    else:
        is_label = record.kind == "label" and record.name is not None
        data = {"feedback_id": record.feedback_id, "kind": record.kind}
        state.add_event("feedback.added", there.trajectory_id, step_id, data)
        if record.kind == "label" and record.name is not None:
            there.labels.pop(record.name, None)
            if record.value is not None:
                there.labels[record.name] = record.value
            state.add_event("label.set", there.trajectory_id, step_id, {"name": record.name, "source": record.source})
        return is_label
    return True


def _arrive(state: State, kind: Target, target_id: str, there: Step | Trajectory) -> None:
    of_target = (kind, target_id)
    own = dict(there.rewards)
    for reward_key, reward in [(k, r) for k, r in state.rewards.items() if k[:2] == of_target]:
        if reward.source == "step" and reward.name in own:
            continue  # Came with the step itself; what others say of it wins, whichever comes first.
        if _is_of(reward, there):
            state.apply_reward(kind, target_id, reward)
        else:
            del state.rewards[reward_key]
            _bury(state, "reward", reward, target_id)
    for feedback_id, (target, feedback) in list(state.feedback.items()):
        if (target, feedback.step_id or feedback.trajectory_id) != of_target:
            continue
        if _is_of(feedback, there):
            _apply(state, kind, target_id, feedback)
        else:
            del state.feedback[feedback_id]
            _bury(state, "feedback", feedback, target_id)
    for key, (about, _) in [(k, found) for k, found in state.annotations.items() if k[:2] == of_target]:
        fault = None
        if _is_of(about, there) and isinstance(there, Step):
            fault = length_fault(about.shape, about.per_token, there.response_length)
        if fault is None and _is_of(about, there):
            _apply(state, kind, target_id, about)
        else:
            del state.annotations[key]
            _bury(state, "annotation", about, target_id, fault)


def _is_of(record: Reward | Feedback | Annotation, there: Step | Trajectory) -> bool:
    return record.trajectory_id in (None, there.trajectory_id)


def _bury(
    state: State, kind: str, record: Reward | Feedback | Annotation, target_id: str, fault: str | None = None
) -> None:
    reason = fault or other_trajectory(target_id, record.trajectory_id, "").message
    text = stored_json(record).decode()[:65_536]
    state.last_dead += 1
    letter = DeadLetter(
        state.last_dead, record.step_id or "", record.trajectory_id or "", reason, text, state.clock(), kind
    )
    state.dead.append(letter)
