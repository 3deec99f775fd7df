"""Whole trajectories from elsewhere, in memory: looked at first, so that nothing of one is stored that is refused."""

from __future__ import annotations

from agentworld.errors import AgentWorldError
from agentworld.pool.bounds import check_message, encode, storable
from agentworld.pool.memory.append import append_prepared
from agentworld.pool.memory.signals import add_signals, check_not_deleted
from agentworld.pool.memory.state import State
from agentworld.pool.memory.trajectories import complete, create
from agentworld.pool.signal_rules import other_feedback, same_feedback
from agentworld.pool.whole_rules import CheckedWhole, check_whole, refused, step_there
from agentworld.records import AddedTrajectory, Feedback


def add_whole(state: State, sent: object) -> AddedTrajectory:
    """Store one, or say why not."""
    try:
        whole = check_whole(sent)
        _check_messages(whole)
        there = state.trajectories.get(whole.trajectory_id)
        if there is not None:
            return whole.answer(there.metadata)
        _check_new(state, whole)
        create(state, whole.trajectory_id, whole.new, at=whole.created_at)
    except AgentWorldError as error:
        return refused(sent, error)
    excluded: dict[str, int] = {}
    for prepared in whole.steps:
        result = append_prepared(state, prepared)
        if result.reason is not None:
            excluded[result.reason] = excluded.get(result.reason, 0) + 1
    add_signals(state, whole.signals)
    complete(state, whole.trajectory_id, whole.status, None, at=whole.completed_at)
    return AddedTrajectory(
        trajectory_id=whole.trajectory_id, outcome="added", steps=len(whole.steps), excluded=excluded
    )


def _check_messages(whole: CheckedWhole) -> None:
    for number, prepared in enumerate(whole.steps):
        step = prepared.step
        with storable(f"steps[{number}]."):
            for message in step.prompt_messages or ():
                check_message(message, encode(message))
            if step.response_message is not None:
                check_message(step.response_message, encode(step.response_message))


def _check_new(state: State, whole: CheckedWhole) -> None:
    check_not_deleted(state, "trajectory", whole.trajectory_id, "new.trajectory_id")
    for number, prepared in enumerate(whole.steps):
        step_id = prepared.step.step_id
        check_not_deleted(state, "step", step_id, f"steps[{number}].step_id")
        if step_id in state.steps:
            raise step_there(step_id, number, state.steps[step_id].step.trajectory_id)
    said: dict[str, Feedback] = {}
    for signal in whole.signals:
        record = signal.record
        if not isinstance(record, Feedback):
            continue
        feedback_id = record.feedback_id or ""
        known = said.get(feedback_id)
        if known is None and feedback_id in state.feedback:
            known = state.feedback[feedback_id][1]
        if known is not None and not same_feedback(known, record):
            raise other_feedback(feedback_id, signal.path)
        said[feedback_id] = record
