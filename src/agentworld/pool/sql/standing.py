"""Where a trajectory stands: its readiness, its place in the order in which consumers look, and its group's close.

`settle` is the one place that changes a trajectory's readiness. Each time one becomes fit to be served, or changes in
what matters for serving, it gets a new `ready_seq`.
"""

from __future__ import annotations

from sqlalchemy import select, update

from agentworld.pool import group_rules, rules, schema
from agentworld.pool.counters import READINESS
from agentworld.pool.group_rules import is_admitted, is_offered, serves
from agentworld.pool.sql import groups
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.rewards import apply_reward, keep_reward
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Group, NewTrajectory, Reward

_t = schema.trajectories
_BY_PK = sql(select(_t).where(_t.c.pk == parameter("row")))
_STAND = sql(
    update(_t).where(_t.c.pk == parameter("row")).values(readiness=parameter("stands"), ready_seq=parameter("seq"))
)
_MASK = sql(update(_t).where(_t.c.pk == parameter("row")).values(masked=1))
_EXCLUDE = sql(update(_t).where(_t.c.pk == parameter("row")).values(excluded_reason=parameter("reason")))


def by_pk(txn: Transaction, pk: int) -> Row:
    """The trajectory's row as it is now."""
    row = txn.one(_BY_PK, {"row": pk})
    assert row is not None
    return row


def settle(txn: Transaction, before: Row, touched: bool = False) -> None:
    """Derive the readiness of a trajectory whose row was `before`, and tell its group.

    `touched`: something on it or on one of its steps changed that consumers may ask for.
    """
    row = by_pk(txn, before["pk"])
    group = groups.find(txn, row["group_id"]) if row["group_id"] is not None else None
    admitted = group is not None and is_admitted(group.failures, group.state == "closed", row["status"])
    readiness = rules.trajectory_readiness(row["status"], row["reward"] is not None, row["excluded_reason"], admitted)
    changed = readiness != before["readiness"]
    if serves(readiness) and (changed or touched):
        txn.execute(_STAND, {"row": row["pk"], "stands": readiness, "seq": txn.next_pk("ready_seq")})
    elif changed:
        txn.execute(_STAND, {"row": row["pk"], "stands": readiness, "seq": None})
    if changed:
        txn.count(READINESS + before["readiness"], -1)
        txn.count(READINESS + readiness)
    was = groups.member_from(before)
    groups.count(txn, was, groups.member_from(row)._replace(readiness=readiness))
    if group is None:
        return
    if not close_if_due(txn, group.group_id) and is_offered(group) and serves(readiness) and (changed or touched):
        groups.offer(txn, group.group_id)


def joined_group(txn: Transaction, group_id: str, new: NewTrajectory) -> Group:
    """The group that a trajectory is about to join, closed first where its time is over."""
    groups.plan(txn, group_id, new)
    return current_group(txn, group_id)


def current_group(txn: Transaction, group_id: str) -> Group:
    """The group of a trajectory as it stands now, closed first where its time is over."""
    close_if_due(txn, group_id)
    group = groups.find(txn, group_id)
    assert group is not None
    return group


def exclude(txn: Transaction, row: Row, reason: str) -> None:
    """Add a reason for exclusion; the caller settles."""
    reasons = [row["excluded_reason"]] if row["excluded_reason"] else []
    txn.execute(_EXCLUDE, {"row": row["pk"], "reason": rules.joined_reasons([*reasons, reason])})


def close_due(txn: Transaction, limit: int = 100) -> int:
    """Close up to `limit` groups whose time is over; returns how many."""
    return sum(close_if_due(txn, row["group_id"]) for row in groups.due(txn.connection, txn.now, limit))


def close_if_due(txn: Transaction, group_id: str) -> bool:
    """Close the group where its size is reached or its time is over."""
    group = groups.find(txn, group_id)
    reason = None if group is None else group_rules.close_reason(group, txn.now)
    if group is None or reason is None:
        return False
    groups.mark_closed(txn, group_id, reason)
    if group.failures in ("zero", "mask"):
        _serve_failures(txn, group)
    groups.offer(txn, group_id)
    closed = groups.find(txn, group_id)
    assert closed is not None
    data = {"group_id": group_id, "by": reason, "ended": closed.ended, "served": closed.served}
    add_event(txn, "group.closed", data=data)
    return True


def _serve_failures(txn: Transaction, group: Group) -> None:
    rows = {row["pk"]: row for row in groups.members(txn, group.group_id)}
    standing, retried = group_rules.failures_at_close(groups.member_from(row) for row in rows.values())
    for member in retried:
        exclude(txn, rows[int(member.key)], group_rules.RETRIED)
    for member in standing:
        row = rows[int(member.key)]
        if group.failures == "mask":
            txn.execute(_MASK, {"row": row["pk"]})
        if group.failures == "zero" or row["reward"] is None:
            trajectory_id = row["trajectory_id"]
            reward = Reward(value=0.0, trajectory_id=trajectory_id, source=group_rules.SOURCE)
            keep_reward(txn, "trajectory", trajectory_id, reward)
            apply_reward(txn, "trajectory", row, trajectory_id, reward)
        settle(txn, row)
