"""The rows of groups: opened with their first trajectory, counted by every write that moves a member.

What closes a group is in standing, as that changes its members.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update

from agentworld.pool import group_rules, schema
from agentworld.pool.counters import GROUPS
from agentworld.pool.group_rules import Member, rollout_ended, serves
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Group, NewTrajectory

_g, _t = schema.groups, schema.trajectories
FIND = sql(select(_g).where(_g.c.group_id == parameter("id")))
_OPEN = sql(insert(_g).values({column.name: parameter(column.name) for column in _g.c}))
_PLAN = sql(
    update(_g)
    .where(_g.c.group_id == parameter("id"))
    .values({name: parameter(name) for name in ("size", "timeout_at", "failures")})
)
_COUNT = sql(
    update(_g)
    .where(_g.c.group_id == parameter("id"))
    .values(
        members=_g.c.members + parameter("more_members"),
        ended=_g.c.ended + parameter("more_ended"),
        served=_g.c.served + parameter("more_served"),
    )
)
_OFFER = sql(update(_g).where(_g.c.group_id == parameter("id")).values(ready_seq=parameter("seq")))
_CLOSE = sql(
    update(_g)
    .where(_g.c.group_id == parameter("id"))
    .values(state="closed", closed_by=parameter("reason"), closed_at=parameter("at"))
)
_DUE = sql(
    select(_g)
    .where(_g.c.state == "open", _g.c.timeout_at <= parameter("now"))
    .order_by(_g.c.timeout_at)
    .limit(parameter("limit"))
)
_OTHER_ATTEMPTS = sql(
    select(_t.c.status).where(
        _t.c.group_id == parameter("id"), _t.c.rollout_index == parameter("rollout"), _t.c.pk != parameter("row")
    )
)
_MEMBERS = sql(select(_t).where(_t.c.group_id == parameter("id")).order_by(_t.c.pk))


def group_from(row: Row) -> Group:
    """A row as a record."""
    return Group(**{name: row[name] for name in Group.__struct_fields__})


def member_from(row: Row) -> Member:
    """What a group counts of a trajectory's row."""
    return Member(row["pk"], *(row[name] for name in Member._fields[1:]))


def find(txn: Transaction, group_id: str) -> Group | None:
    """The group, if it is there."""
    row = txn.one(FIND, {"id": group_id})
    return None if row is None else group_from(row)


def members(txn: Transaction, group_id: str) -> list[Row]:
    """The trajectories of a group, in the order of their creation."""
    return txn.execute(_MEMBERS, {"id": group_id})


def due(reader: Reader, now: float, limit: int = 1) -> list[Row]:
    """Open groups whose time is over, longest ago first."""
    return reader.execute(_DUE, {"now": now, "limit": limit})


def plan(txn: Transaction, group_id: str, new: NewTrajectory) -> Group:
    """The group that `new` joins, opened where it is not there; ConflictError where it was planned otherwise."""
    there = find(txn, group_id)
    if there is None:
        group = group_rules.new_group(group_id, new, txn.now)
        row: dict[str, Any] = {name: getattr(group, name) for name in Group.__struct_fields__}
        txn.execute(_OPEN, {"pk": txn.next_pk("groups"), **row, "ready_seq": None})
        txn.count(GROUPS + "open")
        return group
    planned = group_rules.adopted(there, new)
    if planned != there:
        values = {"size": planned.size, "timeout_at": planned.timeout_at, "failures": planned.failures}
        txn.execute(_PLAN, {"id": group_id, **values})
    return planned


def count(txn: Transaction, before: Member | None, after: Member | None) -> None:
    """Keep the numbers of the groups that a trajectory was in (`before`) and is in now (`after`)."""
    if before is not None and (after is None or before.group_id != after.group_id):
        _count(txn, before, None)
        before = None
    if after is not None:
        _count(txn, before, after)


def offer(txn: Transaction, group_id: str) -> None:
    """Put the group last in the order in which consumers look at groups."""
    txn.execute(_OFFER, {"id": group_id, "seq": txn.next_pk("ready_seq")})


def mark_closed(txn: Transaction, group_id: str, reason: str) -> None:
    """Set the state."""
    txn.execute(_CLOSE, {"id": group_id, "reason": reason, "at": txn.now})
    txn.count(GROUPS + "open", -1)
    txn.count(GROUPS + "closed")


def _count(txn: Transaction, before: Member | None, after: Member | None) -> None:
    one = after or before
    assert one is not None
    if one.group_id is None:
        return
    more = {
        "more_members": (after is not None) - (before is not None),
        "more_served": int(after is not None and serves(after.readiness))
        - int(before is not None and serves(before.readiness)),
        "more_ended": _more_ended(txn, before, after, one),
    }
    if any(more.values()):
        txn.execute(_COUNT, {"id": one.group_id, **more})


def _more_ended(txn: Transaction, before: Member | None, after: Member | None, one: Member) -> int:
    if before is not None and after is not None and before.status == after.status:
        return 0
    others = []
    if one.rollout_index is not None:
        named = {"id": one.group_id, "rollout": one.rollout_index, "row": one.key}
        others = [row["status"] for row in txn.execute(_OTHER_ATTEMPTS, named)]

    def ended(member: Member | None) -> int:
        return int(rollout_ended([*others, member.status] if member is not None else others))

    return ended(after) - ended(before)
