"""Marks of calls: written with their exchange, looked up by digest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.call_marks import ASKED_SECONDS, CallMark, next_waiting
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction

_m, _t = schema.call_marks, schema.trajectories
_NAMES = ("mark", "trajectory_id", "said", "at")
_new = upsert(_m).values({name: parameter(name) for name in _NAMES})
_SET = sql(
    _new.on_conflict_do_update(
        index_elements=["mark", "trajectory_id"], set_={"said": _new.excluded.said, "at": _new.excluded.at}
    )
)
_ASK = sql(_new.on_conflict_do_nothing(index_elements=["mark", "trajectory_id"]))
_FORGET_ASKED = sql(delete(_m).where(_m.c.said == "asked", _m.c.at < parameter("before")))
_FORGET = sql(delete(_m).where(among_texts(_m.c.trajectory_id, "ids")))
_FIND = sql(
    select(_m.c.trajectory_id, _m.c.said, _m.c.at)
    .outerjoin(_t, _t.c.trajectory_id == _m.c.trajectory_id)
    .where(_m.c.mark == parameter("mark"), or_(_t.c.status == "open", _t.c.status.is_(None)))
    .order_by(_m.c.at, _m.c.trajectory_id)
)
_TAKE = sql(
    update(_m)
    .where(_m.c.mark == parameter("of_mark"), _m.c.trajectory_id == parameter("of_trajectory"), _m.c.said == "reply")
    .values(said="taken")
)
_LATEST = sql(
    select(_m.c.trajectory_id, func.max(_m.c.at))
    .where(among_texts(_m.c.trajectory_id, "ids"), _m.c.said.in_(["reply", "taken"]))
    .group_by(_m.c.trajectory_id)
)


def set_marks(txn: Transaction, marks: list[dict[str, Any]]) -> None:
    """Write the marks of calls that ended: mark (bytes), trajectory_id, said, at."""
    txn.many(_SET, marks)


def forget_marks(txn: Transaction, trajectory_ids: Sequence[str]) -> None:
    """Drop the marks of trajectories that take no calls any more."""
    if trajectory_ids:
        txn.many(_FORGET, [{"ids": json_list(list(trajectory_ids))}])


def ask(txn: Transaction, mark: bytes, trajectory_id: str) -> None:
    """Mark a call that is on its way; forget those that never ended."""
    txn.execute(_ASK, {"mark": mark, "trajectory_id": trajectory_id, "said": "asked", "at": txn.now})
    txn.execute(_FORGET_ASKED, {"before": txn.now - ASKED_SECONDS})


def take(txn: Transaction, mark: bytes) -> str | None:
    """Take the next trajectory in which a reply with this mark waits; the last where none does."""
    rows = find(txn, [mark], txn.now)
    found = next_waiting(rows)
    if found is not None:
        txn.execute(_TAKE, {"of_mark": mark, "of_trajectory": found.trajectory_id})
        return found.trajectory_id
    return rows[-1].trajectory_id if rows else None


def find(reader: Reader | Transaction, marks: Sequence[bytes], now: float) -> list[CallMark]:
    """Where the first of the marks that is known stands; `now` by the pool's clock."""
    for mark in marks:
        if rows := reader.execute(_FIND, {"mark": mark}):
            break
    else:
        return []
    ids = json_list([row["trajectory_id"] for row in rows])
    latest = {row[0]: row[1] for row in reader.execute(_LATEST, {"ids": ids})}
    return [
        CallMark(
            row["trajectory_id"],
            row["said"],
            row["at"],
            row["said"] == "reply" and row["at"] >= latest[row["trajectory_id"]],
            max(now - row["at"], 0.0),
        )
        for row in rows
    ]
