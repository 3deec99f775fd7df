"""Where trajectories stand: their readiness, their place in the order in which consumers look, and their groups' close.

`settle_all` is the one place that changes a trajectory's readiness. Each time one becomes fit to be served, or changes
in what matters for serving, it gets a new `ready_seq`. All that one operation changes is settled together, so that it
takes few statements while others wait for the pool's lock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import select, update

from agentworld.pool import group_rules, rules, schema
from agentworld.pool.counters import READINESS
from agentworld.pool.group_rules import Member, is_admitted, is_offered, serves
from agentworld.pool.sql import groups
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.decisions import ACTIVE, redecide
from agentworld.pool.sql.events import Events
from agentworld.pool.sql.lookups import among_integers
from agentworld.pool.sql.rewards import RewardRows
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Group, Reward

CLOSED_GROUPS = 100  # that one transaction closes at most
# Members of the groups that are closed together, but for those of a single group.
CLOSED_MEMBERS = 24
_CLOSING_SECONDS = 0.012  # after which one transaction closes no more

_t = schema.trajectories
_BY_PKS = sql(select(_t).where(among_integers(_t.c.pk, "rows")).order_by(_t.c.pk))
_STAND = sql(
    update(_t).where(_t.c.pk == parameter("row")).values(readiness=parameter("stands"), ready_seq=parameter("seq"))
)
_MASK = sql(update(_t).where(_t.c.pk == parameter("row")).values(masked=1))
_EXCLUDE = sql(update(_t).where(_t.c.pk == parameter("row")).values(excluded_reason=parameter("reason")))
# What decides where a trajectory stands, of its row.
STANDING = ("pk", *Member._fields[1:], "reward")
EFFECTIVE = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values(rewards=parameter("all_values"), reward=parameter("primary_value"))
)


class Move(NamedTuple):
    """A trajectory that has changed: as its group knew it, and its row as it is now but for its readiness.

    `touched`: something on it or on one of its steps changed that consumers may ask for.
    """

    was: Member
    row: Mapping[str, Any] | Row
    touched: bool


def by_pks(txn: Transaction, pks: Iterable[int]) -> list[Row]:
    """The rows of trajectories as they are now."""
    named = list(pks)
    return txn.execute(_BY_PKS, {"rows": json_list(named)}) if named else []


def by_pk(txn: Transaction, pk: int) -> Row:
    """The trajectory's row as it is now."""
    [row] = by_pks(txn, [pk])
    return row


def settle(txn: Transaction, before: Row, touched: bool = False) -> None:
    """Settle one trajectory whose row was `before`, and which is written."""
    settle_all(txn, [Move(groups.member_from(before), by_pk(txn, before["pk"]), touched)])


def settle_touched(txn: Transaction, pks: Iterable[int], steps: Iterable[int] | None = None) -> None:
    """Settle trajectories, which are written, after changes that consumers may ask for but no change of status.
    `steps`: see `redecide`.
    """
    named = list(pks)
    if not named:
        return
    rows = {row["pk"]: row for row in by_pks(txn, named)}
    settle_all(txn, [Move(groups.member_from(rows[pk]), rows[pk], True) for pk in named], steps=steps)


def settle_all(
    txn: Transaction,
    moves: Sequence[Move],
    known: dict[str, Group] | None = None,
    steps: Iterable[int] | None = None,
) -> None:
    """Derive the readiness of trajectories, and tell their groups, which close where that is due.

    `known`: the groups by id, where the caller has read them; kept up to date. `steps`: see `redecide`.
    """
    if txn.counter(ACTIVE) > 0:
        moves = _decided(txn, moves, steps)
    if known is None:
        known = groups.load(txn, (row["group_id"] for _, row, _ in moves if row["group_id"] is not None))
    stand: list[dict[str, Any]] = []
    changes: list[groups.Change] = []
    named: dict[str, bool] = {}  # the groups, and whether they are offered anew
    for was, row, touched in moves:
        group = known.get(row["group_id"])
        admitted = group is not None and is_admitted(group.failures, group.state == "closed", row["status"])
        readiness = rules.trajectory_readiness(
            row["status"], row["reward"] is not None, row["excluded_reason"], admitted
        )
        changed = readiness != was.readiness
        anew = serves(readiness) and (changed or touched)
        if changed or anew:
            seq = txn.next_pk("ready_seq") if anew else None
            stand.append({"row": row["pk"], "stands": readiness, "seq": seq})
        if changed:
            txn.count(READINESS + was.readiness, -1)
            txn.count(READINESS + readiness)
        changes.append((was, groups.member_from(row)._replace(readiness=readiness)))
        if group is not None:
            named[group.group_id] = named.get(group.group_id, False) or anew
    txn.many(_STAND, stand)
    groups.count_known(txn, changes, known)
    closed = close_due_of(txn, known, named)
    groups.offer(
        txn, *(name for name, anew in named.items() if anew and name not in closed and is_offered(known[name]))
    )


def _decided(txn: Transaction, moves: Sequence[Move], steps: Iterable[int] | None) -> list[Move]:
    """The moves, with what curation makes of those that have ended."""
    changed = redecide(txn, (row["pk"] for _, row, _ in moves if row["status"] != "open"), steps)
    rows = {row["pk"]: row for row in by_pks(txn, changed)}
    return [Move(was, rows.get(row["pk"], row), touched or row["pk"] in rows) for was, row, touched in moves]


def effective(row: Row, value: float) -> dict[str, Any]:
    """The parameters of EFFECTIVE that make `value` the primary reward of a trajectory."""
    values = {**from_json(row["rewards"], {}), rules.PRIMARY: value}
    return {"row": row["pk"], "all_values": json_or_none(values), "primary_value": value}


def exclude(txn: Transaction, row: Row | Mapping[str, Any], reason: str) -> str | None:
    """Add a reason for exclusion, and return all of them; the caller settles."""
    reasons = [row["excluded_reason"]] if row["excluded_reason"] else []
    joined = rules.joined_reasons([*reasons, reason])
    txn.execute(_EXCLUDE, {"row": row["pk"], "reason": joined})
    return joined


def close_due(txn: Transaction, limit: int = CLOSED_GROUPS) -> int:
    """Close up to `limit` groups whose time is over, for a short while; returns how many."""
    until = time.perf_counter() + _CLOSING_SECONDS
    closed = 0
    while closed < limit:
        due: dict[str, Group] = {}
        members = 0
        rows = groups.due(txn.connection, txn.now, limit - closed)
        for row in rows:
            group = groups.group_from(row)
            members += group.members
            if due and members > CLOSED_MEMBERS:
                break
            due[group.group_id] = group
        closed += len(close_due_of(txn, due, due))
        if len(due) == len(rows) or time.perf_counter() > until:
            break
    return closed


def close_due_of(txn: Transaction, known: dict[str, Group], named: Iterable[str]) -> set[str]:
    """Close those of these groups whose size is reached or whose time is over; returns them. `known` is kept right."""
    reasons = {name: reason for name in named if (reason := group_rules.close_reason(known[name], txn.now)) is not None}
    if not reasons:
        return set()
    groups.mark_closed(txn, reasons)
    for name, reason in reasons.items():
        known[name] = msgspec.structs.replace(known[name], state="closed", closed_by=reason, closed_at=txn.now)
    rewarded = _serve_failures(txn, known, [name for name in reasons if known[name].failures in ("zero", "mask")])
    groups.offer(txn, *reasons)
    events = Events(txn)
    for name, reason in reasons.items():
        for trajectory_id in rewarded.get(name, ()):
            data = {"name": rules.PRIMARY, "value": 0.0, "source": group_rules.SOURCE}
            events.add("reward.set", trajectory_id, data=data, channel=known[name].channel)
        closed = known[name]
        told = {"group_id": name, "by": reason, "ended": closed.ended, "served": closed.served}
        events.add("group.closed", data=told, channel=closed.channel)
    events.write()
    return set(reasons)


def _serve_failures(txn: Transaction, known: dict[str, Group], named: Sequence[str]) -> dict[str, list[str]]:
    """What becomes of the failures of groups that close; returns which trajectories were rewarded, by group."""
    if not named:
        return {}
    rows = {row["pk"]: row for row in groups.members(txn, named)}
    retried: list[dict[str, Any]] = []
    standing: list[Row] = []
    for name in named:
        members = [groups.member_from(row) for row in rows.values() if row["group_id"] == name]
        stand, again = group_rules.failures_at_close(members)
        retried += [{"row": member.key, "reason": group_rules.RETRIED} for member in again]
        standing += [rows[int(member.key)] for member in stand]
    txn.many(_EXCLUDE, retried)
    txn.many(_MASK, [{"row": row["pk"]} for row in standing if known[row["group_id"]].failures == "mask"])
    due = [row for row in standing if known[row["group_id"]].failures == "zero" or row["reward"] is None]
    kept = RewardRows(txn)
    kept.load("trajectory", (row["trajectory_id"] for row in due))
    values: dict[int, dict[str, Any]] = {}
    rewarded: dict[str, list[str]] = {}
    for row in due:
        reward = Reward(value=0.0, trajectory_id=row["trajectory_id"], source=group_rules.SOURCE)
        if kept.keep("trajectory", row["trajectory_id"], reward):
            values[row["pk"]] = effective(row, 0.0)
            rewarded.setdefault(row["group_id"], []).append(row["trajectory_id"])
    kept.write()
    txn.many(EFFECTIVE, list(values.values()))
    moves = []
    for row in standing:
        now = {name: row[name] for name in STANDING}
        if row["pk"] in values:
            now["reward"] = 0.0
        moves.append(Move(groups.member_from(row), now, False))
    settle_all(txn, moves, known)
    return rewarded
