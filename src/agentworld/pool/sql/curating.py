"""Policies put in force and taken away: all that has ended is decided anew, bit by bit, from where it broke off."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, insert, null, select, update

from agentworld.pool import schema
from agentworld.pool.decision_rules import compile_policy
from agentworld.pool.sql import groups
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.decisions import ACTIVE
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.judging import policy_from, stored_policy
from agentworld.pool.sql.standing import Move, by_pks, settle_all
from agentworld.pool.sql.statements import Statement, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import ActivePolicy, CurationPolicy

SWEPT_AT_ONCE = 50  # trajectories; a transaction goes on with more until SWEEP_SECONDS are over
SWEPT_STEPS = 500  # of those that have ended, but for those of a single one
SWEEP_SECONDS = 0.02

_c, _t = schema.curation_policies, schema.trajectories
_NOW = sql(select(_c).where(_c.c.channel == parameter("name"), _c.c.ended_at.is_(None)))
_INSERT = sql(insert(_c).values({column.name: parameter(column.name) for column in _c.c}))
# Where another takes its place, that one sweeps.
_REPLACE = sql(update(_c).where(_c.c.channel == parameter("name"), _c.c.swept.is_not(None)).values(swept=null()))
_END = sql(update(_c).where(_c.c.pk == parameter("row")).values(ended_at=parameter("at"), swept=parameter("upto")))
_SWEEPING = {
    False: sql(select(_c).where(_c.c.swept.is_not(None)).order_by(_c.c.pk).limit(1)),
    True: sql(select(_c).where(_c.c.swept.is_not(None), _c.c.channel == parameter("name")).order_by(_c.c.pk).limit(1)),
}
SWEEPING_CHANNELS = sql(select(_c.c.channel).where(_c.c.swept.is_not(None)))
_SWEPT = sql(update(_c).where(_c.c.pk == parameter("row")).values(swept=parameter("upto")))
_DONE = sql(update(_c).where(_c.c.pk == parameter("row")).values(swept=null()))
_UNSETTLED = sql(select(func.count()).where(_c.c.channel == parameter("name"), _c.c.swept.is_not(None)))
_NEXT = sql(
    select(_t.c.pk, _t.c.status, _t.c.step_count)
    .where(_t.c.channel == parameter("name"), _t.c.pk > parameter("above"))
    .order_by(_t.c.pk)
    .limit(parameter("limit"))
)
_LAST = sql(select(func.max(_t.c.pk)).where(_t.c.channel == parameter("name")))


class Swept(NamedTuple):
    """How far a sweep has come: `upto` and `of` are keys of trajectories. `channel`: None where none is left."""

    channel: str | None
    upto: int = 0
    of: int = 0


def install(txn: Transaction, policy: CurationPolicy, source: str) -> bool:
    """Put a policy in force for its channel; False where the same one is already."""
    compiled = compile_policy(policy.rules, policy.default)
    now = txn.one(_NOW, {"name": policy.channel})
    if now is not None and now["version"] == compiled.version:
        return False
    waiting = _count_sweeping(txn, policy.channel)
    txn.execute(_REPLACE, {"name": policy.channel})
    if now is not None:
        txn.execute(_END, {"row": now["pk"], "at": txn.now, "upto": None})
    row: dict[str, Any] = {
        "pk": txn.next_pk("curation_policies"),
        "channel": policy.channel,
        "version": compiled.version,
        "policy": stored_policy(policy),
        "source": source,
        "created_at": txn.now,
        "ended_at": None,
        "swept": 0,
    }
    txn.execute(_INSERT, row)
    # One of the channel counts: the one in force, or else one whose decisions are taken away.
    txn.count(ACTIVE, 1 - (1 if now is not None else waiting))
    data = {"channel": policy.channel, "version": compiled.version, "name": policy.name}
    add_event(txn, "curation.set", data=data, channel=policy.channel)
    return True


def end(txn: Transaction, channel: str) -> bool:
    """Take the channel's policy out of force; its decisions go with the sweep. False where there is none."""
    now = txn.one(_NOW, {"name": channel})
    if now is None:
        return False
    txn.execute(_END, {"row": now["pk"], "at": txn.now, "upto": 0})
    add_event(txn, "curation.cleared", data={"channel": channel, "version": now["version"]}, channel=channel)
    return True


def sweep(txn: Transaction, channel: str | None = None, seconds: float | None = None) -> Swept:
    """Decide anew some of what the latest change of a policy has not reached yet, of one channel or of any."""
    if txn.counter(ACTIVE) <= 0:
        return Swept(None)
    row = txn.one(_SWEEPING[channel is not None], {} if channel is None else {"name": channel})
    if row is None:
        return Swept(None)
    channel, upto = row["channel"], row["swept"]
    until = time.perf_counter() + (SWEEP_SECONDS if seconds is None else seconds)
    while True:
        found = txn.execute(_NEXT, {"name": channel, "above": upto, "limit": SWEPT_AT_ONCE})
        is_last = len(found) < SWEPT_AT_ONCE
        if (fitting := _fitting(found)) < len(found):
            found, is_last = found[:fitting], False
        ended = [one["pk"] for one in found if one["status"] != "open"]
        settle_all(txn, [Move(groups.member_from(one), one, False) for one in by_pks(txn, ended)])
        if is_last:
            txn.execute(_DONE, {"row": row["pk"]})
            if row["ended_at"] is not None:
                txn.count(ACTIVE, -1)
            return Swept(channel, 1, 1)
        upto = found[-1]["pk"]
        if time.perf_counter() > until:
            break
    txn.execute(_SWEPT, {"row": row["pk"], "upto": upto})
    last = txn.one(_LAST, {"name": channel})
    return Swept(channel, upto, max(upto, (last[0] if last is not None else 0) or 0))


def _fitting(found: Sequence[Row]) -> int:
    """How many of these trajectories are decided together."""
    steps = 0
    for place, row in enumerate(found):
        steps += row["step_count"] if row["status"] != "open" else 0
        if place and steps > SWEPT_STEPS:
            return place
    return len(found)


def _count_sweeping(txn: Transaction, channel: str) -> int:
    row = txn.one(_UNSETTLED, {"name": channel})
    return int(row[0]) if row is not None else 0


def _listing(in_force: bool, by_channel: bool) -> Statement:
    found = select(_c)
    if in_force:
        found = found.where(_c.c.ended_at.is_(None)).order_by(_c.c.channel)
    else:
        found = found.order_by(_c.c.pk.desc()).limit(parameter("limit"))
    return sql(found.where(_c.c.channel == parameter("name")) if by_channel else found)


_LISTS = {(a, b): _listing(a, b) for a in (False, True) for b in (False, True)}
_LEFT = sql(
    select(func.count()).where(_t.c.channel == parameter("name"), _t.c.pk > parameter("above"), _t.c.status != "open")
)


def list_policies(reader: Reader, channel: str | None, in_force: bool, limit: int) -> list[ActivePolicy]:
    """Policies in force by channel, or all that ever were, the latest first."""
    bound: dict[str, Any] = {} if in_force else {"limit": limit}
    if channel is not None:
        bound["name"] = channel
    return [_active(reader, row) for row in reader.execute(_LISTS[in_force, channel is not None], bound)]


def _active(reader: Reader, row: Row) -> ActivePolicy:
    pending = 0
    if row["swept"] is not None:
        [left] = reader.execute(_LEFT, {"name": row["channel"], "above": row["swept"]})
        pending = left[0]
    return ActivePolicy(
        policy=policy_from(row),
        version=row["version"],
        source=row["source"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        pending=pending,
    )
