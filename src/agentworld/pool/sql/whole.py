"""Whole trajectories from elsewhere, several in one transaction.

Each is whole or not there for whoever reads, and after a crash too: however many steps it has, it is written by one
transaction. What is shared between a portion of them (looking up, inserting, settling) is done once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import select

from agentworld.errors import AgentWorldError
from agentworld.pool import schema
from agentworld.pool.counters import TOMBSTONES
from agentworld.pool.sql import groups
from agentworld.pool.sql.append import Appender
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.signals import deleted_among, was_deleted
from agentworld.pool.sql.standing import close_due_of
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.whole_batch import StepFault, WholeBatch
from agentworld.pool.whole_rules import CheckedWhole, step_there
from agentworld.records import AddedTrajectory, Group

PORTION = 512
"""Records of one transaction, but for a single trajectory that has more: some 40 ms."""

_s, _t = schema.steps, schema.trajectories
_OWNER = sql(
    select(_t.c.trajectory_id).join_from(_s, _t, _t.c.pk == _s.c.trajectory).where(_s.c.step_id == parameter("id"))
)


_THERE = sql(select(_t.c.trajectory_id, _t.c.metadata).where(among_texts(_t.c.trajectory_id, "ids")))


class Unfit(AgentWorldError):
    """One of the trajectories cannot be stored, so nothing was; `place`: which, `error`: why."""

    def __init__(self, place: int, error: AgentWorldError) -> None:
        super().__init__(error.message)
        self.place = place
        self.error = error


def weight(whole: CheckedWhole) -> int:
    """How many records it is."""
    return 1 + len(whole.steps) + len(whole.signals)


def add_all(txn: Transaction, appender: Appender, wholes: Sequence[CheckedWhole]) -> list[AddedTrajectory]:
    """Store those that are not there; Unfit where one of them cannot be stored, which undoes all of it."""
    named = json_list([whole.trajectory_id for whole in wholes])
    there = {row["trajectory_id"]: row["metadata"] for row in txn.execute(_THERE, {"ids": named})}
    new = [place for place, whole in enumerate(wholes) if whole.trajectory_id not in there]
    _check_not_deleted(txn, wholes, new)
    excluded: dict[int, dict[str, int]] = {}
    for wave in _waves(wholes, new):
        excluded |= _add(txn, appender.whole(txn), wholes, wave)
    return [
        AddedTrajectory(
            trajectory_id=whole.trajectory_id, outcome="added", steps=len(whole.steps), excluded=excluded[place]
        )
        if place in excluded
        else whole.answer(from_json(there[whole.trajectory_id], {}))
        for place, whole in enumerate(wholes)
    ]


def _waves(wholes: Sequence[CheckedWhole], places: Sequence[int]) -> Iterator[list[int]]:
    """Those that are written together, in order: of each group one, as what becomes of the next depends on it."""
    wave: list[int] = []
    named: set[str] = set()
    for place in places:
        group_id = wholes[place].new.group_id
        if group_id in named:
            yield wave
            wave, named = [], set()
        wave.append(place)
        if group_id is not None:
            named.add(group_id)
    if wave:
        yield wave


def _add(
    txn: Transaction, batch: WholeBatch, wholes: Sequence[CheckedWhole], wave: Sequence[int]
) -> dict[int, dict[str, int]]:
    """Write some; returns how many steps are excluded of each, by reason."""
    known = _groups(txn, wholes, wave)
    batch.load_whole([wholes[place] for place in wave])
    excluded: dict[int, dict[str, int]] = {}
    for place in wave:
        whole = wholes[place]
        group_id = whole.new.group_id
        try:
            excluded[place] = batch.add_whole(whole, group_id is not None and known[group_id].state == "closed")
        except StepFault as fault:
            raise Unfit(place, _fault_of_step(txn, wholes, whole, fault)) from None
        except AgentWorldError as error:
            raise Unfit(place, error) from None
    batch.end(known)
    return excluded


def _groups(txn: Transaction, wholes: Sequence[CheckedWhole], wave: Sequence[int]) -> dict[str, Group]:
    """The groups of the trajectories as they join them: opened, and closed where their time is over."""
    joined = [(place, group_id) for place in wave if (group_id := wholes[place].new.group_id) is not None]
    known = groups.load(txn, [group_id for _, group_id in joined])
    for place, group_id in joined:
        try:
            known[group_id] = groups.plan(txn, group_id, wholes[place].new, known.get(group_id))
        except AgentWorldError as error:
            error.path = f"new.{error.path}"
            raise Unfit(place, error) from None
    close_due_of(txn, known, [group_id for _, group_id in joined])
    return known


def _check_not_deleted(txn: Transaction, wholes: Sequence[CheckedWhole], new: Sequence[int]) -> None:
    if txn.counter(TOMBSTONES) <= 0:
        return
    named = [(place, "trajectory", wholes[place].trajectory_id, "new.trajectory_id") for place in new]
    named += [(place, "user", user, "new.user") for place in new if (user := wholes[place].new.user) is not None]
    deleted = deleted_among(txn, [name for _, _, name, _ in named])
    for place, kind, name, path in named:
        if (kind, name) in deleted:
            raise Unfit(place, was_deleted(kind, name, deleted[kind, name], path))


def _fault_of_step(
    txn: Transaction, wholes: Sequence[CheckedWhole], whole: CheckedWhole, fault: StepFault
) -> AgentWorldError:
    if (error := fault.error) is None:
        step_id = whole.steps[fault.number].step.step_id
        owner = txn.one(_OWNER, {"id": step_id})
        other = _first_with(wholes, step_id) if owner is None else owner["trajectory_id"]
        return step_there(step_id, fault.number, other)
    at = f"steps[{fault.number}]"
    error.path = f"{at}.{error.path}" if error.path else at
    return error


def _first_with(wholes: Sequence[CheckedWhole], step_id: str) -> str:
    return next(
        whole.trajectory_id for whole in wholes if any(prepared.step.step_id == step_id for prepared in whole.steps)
    )
