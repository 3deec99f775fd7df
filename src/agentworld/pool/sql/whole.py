"""Whole trajectories from elsewhere, several in one transaction: created, filled, rewarded and ended.

Each is whole or not there for whoever reads, and after a crash too: however many steps it has, it is written by one
transaction. What is shared between a portion of them (looking up, inserting, settling) is done once.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from agentworld.errors import AgentWorldError
from agentworld.pool import schema
from agentworld.pool.sql import trajectories
from agentworld.pool.sql.append import Appender, StepFault
from agentworld.pool.sql.feedback import FeedbackRows
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.signals import add_signals
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.trajectories import Completion, Creation
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.whole_rules import CheckedWhole, step_there
from agentworld.records import AddedTrajectory, Feedback

PORTION = 256
"""Steps and signals of one transaction, but for a single trajectory that has more: some 20 to 50 ms."""

_s, _t = schema.steps, schema.trajectories
_OWNER = sql(
    select(_t.c.trajectory_id).join_from(_s, _t, _t.c.pk == _s.c.trajectory).where(_s.c.step_id == parameter("id"))
)


class Unfit(AgentWorldError):
    """One of the trajectories cannot be stored, so nothing was; `place`: which, `error`: why."""

    def __init__(self, place: int, error: AgentWorldError) -> None:
        super().__init__(error.message)
        self.place = place
        self.error = error


def weight(whole: CheckedWhole) -> int:
    """How many records it is."""
    return 2 + len(whole.steps) + len(whole.signals)


def add_all(txn: Transaction, appender: Appender, wholes: Sequence[CheckedWhole]) -> list[AddedTrajectory]:
    """Store those that are not there; Unfit where one of them cannot be stored, which undoes all of it."""
    there = trajectories.rows_of(txn, [whole.trajectory_id for whole in wholes])
    new = [place for place, whole in enumerate(wholes) if whole.trajectory_id not in there]
    _create(txn, wholes, new)
    excluded = _append(txn, appender, wholes, new)
    _signal(txn, wholes, new)
    ended = [wholes[place] for place in new]
    endings = [Completion(whole.trajectory_id, whole.status, None, whole.completed_at) for whole in ended]
    for place, outcome in zip(new, trajectories.complete_all(txn, endings), strict=True):
        if isinstance(outcome, AgentWorldError):
            raise Unfit(place, outcome)
    added = []
    for place, whole in enumerate(wholes):
        row = there.get(whole.trajectory_id)
        if row is not None:
            added.append(whole.answer(from_json(row["metadata"], {})))
            continue
        added.append(
            AddedTrajectory(
                trajectory_id=whole.trajectory_id, outcome="added", steps=len(whole.steps), excluded=excluded[place]
            )
        )
    return added


def _create(txn: Transaction, wholes: Sequence[CheckedWhole], new: Sequence[int]) -> None:
    beginnings = [Creation(wholes[at].trajectory_id, wholes[at].new, wholes[at].created_at) for at in new]
    for place, outcome in zip(new, trajectories.create_all(txn, beginnings), strict=True):
        if isinstance(outcome, AgentWorldError):
            raise Unfit(place, outcome)


def _append(
    txn: Transaction, appender: Appender, wholes: Sequence[CheckedWhole], new: Sequence[int]
) -> dict[int, dict[str, int]]:
    """Append the steps; returns how many are excluded of each trajectory, by reason."""
    try:
        results = appender.append_whole(txn, [wholes[place].steps for place in new])
    except StepFault as fault:
        place = new[fault.place]
        step_id = wholes[place].steps[fault.number].step.step_id
        if (error := fault.error) is None:
            owner = txn.one(_OWNER, {"id": step_id})
            other = wholes[_first_with(wholes, step_id)].trajectory_id if owner is None else owner["trajectory_id"]
            error = step_there(step_id, fault.number, other)
        else:
            at = f"steps[{fault.number}]"
            error.path = f"{at}.{error.path}" if error.path else at
        raise Unfit(place, error) from None
    excluded: dict[int, dict[str, int]] = {}
    for place, of_one in zip(new, results, strict=True):
        counted = excluded[place] = {}
        for result in of_one:
            if result.reason is not None:
                counted[result.reason] = counted.get(result.reason, 0) + 1
    return excluded


def _first_with(wholes: Sequence[CheckedWhole], step_id: str) -> int:
    return next(
        place for place, whole in enumerate(wholes) if any(prepared.step.step_id == step_id for prepared in whole.steps)
    )


def _signal(txn: Transaction, wholes: Sequence[CheckedWhole], new: Sequence[int]) -> None:
    said = [(place, signal) for place in new for signal in wholes[place].signals]
    if not said:
        return
    named = [signal.record.feedback_id or "" for _, signal in said if isinstance(signal.record, Feedback)]
    known = FeedbackRows(txn, named)
    for place, signal in said:
        if isinstance(signal.record, Feedback):
            try:
                known.check(signal.record, signal.path)
            except AgentWorldError as error:
                raise Unfit(place, error) from None
    add_signals(txn, [signal for _, signal in said])
