"""Taking trajectories out of the pool with all that hangs on them, in bounded transactions.

The first transaction makes a trajectory unservable and takes it out of every backlog, so that nobody is handed half of
it; then its steps go, some in each transaction; the last takes the row. What was interrupted is gone on with, since
the trajectory carries the mark DELETING. On request (`bury`) it also leaves a tombstone, and pins and leases do not
hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import and_, delete, exists, insert, null, or_, select, tuple_, update

from agentworld.forest import BLOCK_SIZE
from agentworld.pool import counters, schema
from agentworld.pool.keeping.events import kept_data
from agentworld.pool.sql import groups
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.garbage import Loose
from agentworld.pool.sql.rows import json_or_none
from agentworld.pool.sql.signals import add_event
from agentworld.pool.sql.statements import integers, json_list, parameter, sql, texts
from agentworld.pool.sql.transaction import Transaction

DELETING = "deleted"  # the excluded_reason of a trajectory that is on its way out
STEPS_AT_ONCE = 200
EVENTS_AT_ONCE = 5_000

_t, _s, _x = schema.trajectories, schema.steps, schema.exchanges
_d, _bl, _bu, _ba = schema.deliveries, schema.backlog, schema.batch_units, schema.batches
_f, _r, _a, _aw = schema.feedback, schema.rewards, schema.annotation_arrays, schema.awaited

_FIND = sql(
    select(
        _t.c.pk,
        _t.c.trajectory_id,
        _t.c.group_id,
        _t.c.rollout_index,
        _t.c.attempt,
        _t.c.status,
        _t.c.readiness,
        _t.c.channel,
        _t.c.excluded_reason,
    ).where(_t.c.trajectory_id == parameter("id"))
)
_MARK = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values(excluded_reason=DELETING, readiness="excluded", ready_seq=null(), usable_steps=0)
)
_STEPS = sql(
    select(
        _s.c.pk,
        _s.c.step_id,
        _s.c.channel,
        _s.c.block,
        _s.c.prompt_node,
        _s.c.reply_node,
        _s.c.tools,
        _s.c.id_count,
        _s.c.sampled,
        _s.c.excluded_reason.is_not(None).label("excluded"),
    )
    .where(_s.c.trajectory == parameter("row"))
    .order_by(_s.c.pk)
    .limit(parameter("limit"))
)
_STEP_IDS = sql(select(_s.c.step_id).where(_s.c.trajectory == parameter("row")))
_DROP_STEPS = sql(delete(_s).where(_s.c.pk.in_(integers("rows"))))
_EXCHANGES = sql(
    select(_x.c.pk, _x.c.status).where(_x.c.trajectory == parameter("row")).order_by(_x.c.pk).limit(parameter("limit"))
)
_DROP_EXCHANGES = sql(delete(_x).where(_x.c.pk.in_(integers("rows"))))
_DROP_TRAJECTORY = sql(delete(_t).where(_t.c.pk == parameter("row")))


def _on_targets(table: Any) -> Any:
    return and_(table.c.target == parameter("of"), table.c.target_id.in_(texts("ids")))


_DROP_REWARDS = sql(delete(_r).where(_on_targets(_r)).returning(_r.c.pk))
_DROP_ANNOTATIONS = sql(delete(_a).where(_on_targets(_a)).returning(_a.c.pk))
_DROP_AWAITED = sql(delete(_aw).where(_on_targets(_aw)).returning(_aw.c.target))
_DROP_FEEDBACK = sql(
    delete(_f)
    .where(or_(_on_targets(_f), and_(_f.c.target == parameter("of"), _f.c.other_id.in_(texts("ids")))))
    .returning(_f.c.kind, _f.c.feedback_id)
)
# Of signals that came before their step and named the trajectory; only those that still wait are looked through.
_never_came = select(_aw.c.target_id).where(_aw.c.target == "step")
_WAITING = {
    table.name: sql(
        delete(table)
        .where(
            table.c.target == "step",
            table.c.target_id.in_(_never_came),
            table.c.of_trajectory == parameter("id"),
        )
        .returning(table.c.target_id, (table.c.kind if table is _f else table.c.name).label("of_kind"))
    )
    for table in (_r, _a, _f)
}
_dead = schema.dead_letters
_DROP_DEAD = sql(
    delete(_dead)
    .where(or_(_dead.c.trajectory_id.in_(texts("trajectories")), _dead.c.step_id.in_(texts("steps"))))
    .returning(_dead.c.pk)
)
_consumer_names = select(schema.consumers.c.name)
_DROP_DELIVERIES = sql(
    delete(_d)
    .where(_d.c.consumer.in_(_consumer_names), _d.c.unit == parameter("of_unit"), _d.c.key.in_(texts("ids")))
    .returning(_d.c.state, _d.c.consumer)
)
_pos = schema.positions.c
# Named in full, so that the primary key finds them.
_backlogs = select(_pos.consumer, _pos.unit, _pos.channel).where(_pos.unit == parameter("of_unit"))
_DROP_BACKLOG = sql(
    delete(_bl)
    .where(tuple_(_bl.c.consumer, _bl.c.unit, _bl.c.channel).in_(_backlogs), _bl.c.key.in_(texts("ids")))
    .returning(_bl.c.consumer)
)
_batch_of_unit = exists().where(_ba.c.pk == _bu.c.batch, _ba.c.unit == parameter("of_unit"))
_DROP_UNITS = sql(delete(_bu).where(_bu.c.key.in_(texts("ids")), _batch_of_unit))
_SNAPSHOTS = sql(
    select(_bu.c.batch, _bu.c.key, _bu.c.rewards).where(
        _bu.c.key.in_(texts("ids")), _batch_of_unit, _bu.c.rewards.is_not(None)
    )
)
_SET_SNAPSHOT = sql(
    update(_bu)
    .where(_bu.c.batch == parameter("of_batch"), _bu.c.key == parameter("of_key"))
    .values(rewards=parameter("rewards"))
)
_DROP_PINS = sql(
    delete(schema.pins).where(schema.pins.c.target == "trajectory", schema.pins.c.target_id == parameter("id"))
)
_DROP_GROUP = sql(delete(schema.groups).where(schema.groups.c.group_id == parameter("id")))
_tomb = schema.tombstones
_KNOWN_TOMB = sql(
    select(_tomb.c.pk, _tomb.c.reason).where(_tomb.c.kind == parameter("of_kind"), _tomb.c.target_id == parameter("id"))
)
_BURY = sql(insert(_tomb).values({name: parameter(name) for name in ("pk", "kind", "target_id", "reason", "at")}))
_e = schema.events
_EVENTS = sql(
    select(_e.c.pk, _e.c.data).where(
        _e.c.pk > parameter("above"),
        _e.c.pk <= parameter("upto"),
        _e.c.trajectory_id.in_(texts("ids")),
        _e.c.data.is_not(None),
    )
)
_EVENTS_OF_DELETED = sql(
    select(_e.c.pk, _e.c.data).where(
        _e.c.pk > parameter("above"),
        _e.c.pk <= parameter("upto"),
        _e.c.data.is_not(None),
        _e.c.trajectory_id.in_(select(_tomb.c.target_id).where(_tomb.c.kind == "trajectory")),
    )
)
_SET_EVENT = sql(update(_e).where(_e.c.pk == parameter("row")).values(data=parameter("data")))


class Removed(NamedTuple):
    """What one transaction took: whether the trajectory was there and is now gone, and how many steps went."""

    there: bool
    gone: bool
    steps: int


def bury(txn: Transaction, kind: str, target_id: str, reason: str | None) -> None:
    """Leave a tombstone; one that is there stays as it is."""
    if txn.one(_KNOWN_TOMB, {"of_kind": kind, "id": target_id}) is not None:
        return
    values = {"kind": kind, "target_id": target_id, "reason": reason, "at": txn.now}
    txn.execute(_BURY, {"pk": txn.next_pk("tombstones"), **values})
    txn.count(counters.TOMBSTONES)


def remove(txn: Transaction, trajectory_id: str, loose: Loose) -> Removed:
    """Take the next part of a trajectory, and add to `loose` what may have lost its last user.

    One with a tombstone goes on request: its steps get tombstones too, and an event tells of it.
    """
    row = txn.one(_FIND, {"id": trajectory_id})
    tomb = None
    if txn.counter(counters.TOMBSTONES):
        tomb = txn.one(_KNOWN_TOMB, {"of_kind": "trajectory", "id": trajectory_id})
    if row is None:
        there = _drop_signals(txn, "trajectory", [trajectory_id])
        there += _drop_waiting(txn, trajectory_id) + _drop_dead(txn, [trajectory_id], [])
        return Removed(there > 0, True, 0)
    if row["excluded_reason"] != DELETING:
        _hide(txn, row)
    steps = txn.execute(_STEPS, {"row": row["pk"], "limit": STEPS_AT_ONCE})
    _drop_steps(txn, steps, loose)
    if tomb is not None:
        _bury_steps(txn, [step["step_id"] for step in steps], tomb["reason"])
    calls = txn.execute(_EXCHANGES, {"row": row["pk"], "limit": STEPS_AT_ONCE})
    if calls:
        txn.execute(_DROP_EXCHANGES, {"rows": json_list([call["pk"] for call in calls])})
        txn.count(counters.EXCHANGES, -len(calls))
        txn.count(counters.EXCHANGES_FAILED, -sum(call["status"] == "error" for call in calls))
    gone = len(steps) < STEPS_AT_ONCE and len(calls) < STEPS_AT_ONCE
    if gone:
        _finish(txn, row)
        if tomb is not None:
            add_event(txn, "trajectory.deleted", trajectory_id)
    return Removed(True, gone, len(steps))


def scrub_events(reader: Reader, trajectory_ids: Sequence[str] | None, above: int, upto: int) -> list[dict[str, Any]]:
    """For the events of a range that tell of these trajectories (None: of all with a tombstone): the rows as they must
    become.
    """
    bound: dict[str, Any] = {"above": above, "upto": upto}
    if trajectory_ids is None:
        found = reader.execute(_EVENTS_OF_DELETED, bound)
    else:
        found = reader.execute(_EVENTS, {**bound, "ids": json_list(trajectory_ids)})
    changed = []
    for row in found:
        data = msgspec.json.decode(row["data"])
        if (kept := kept_data(data)) != data:
            changed.append({"row": row["pk"], "data": json_or_none(kept)})
    return changed


def write_scrubbed(txn: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    """Write what `scrub_events` gave."""
    txn.many(_SET_EVENT, rows)


def _hide(txn: Transaction, row: Row) -> None:
    """Nobody is handed it, or holds it, from now on."""
    txn.execute(_MARK, {"row": row["pk"]})
    txn.count(counters.READINESS + row["readiness"], -1)
    txn.count(counters.READINESS + "excluded")
    txn.execute(_DROP_PINS, {"id": row["trajectory_id"]})
    _drop_deliveries(txn, "trajectory", [row["trajectory_id"]])
    if row["group_id"] is not None:
        _drop_from_snapshots(txn, row)
        before = groups.member_from(row)
        groups.count(txn, before, before._replace(readiness="excluded", excluded_reason=DELETING))


def _bury_steps(txn: Transaction, step_ids: Sequence[str], reason: str | None) -> None:
    """So that a signal for one of them is refused, and does not wait for it."""
    if not step_ids:
        return
    first = txn.next_pk("tombstones", len(step_ids))
    rows = [
        {"pk": first + number, "kind": "step", "target_id": step_id, "reason": reason, "at": txn.now}
        for number, step_id in enumerate(step_ids)
    ]
    txn.many(_BURY, rows)
    txn.count(counters.TOMBSTONES, len(rows))


def _drop_steps(txn: Transaction, steps: Sequence[Row], loose: Loose) -> None:
    if not steps:
        return
    ids = [step["step_id"] for step in steps]
    _drop_signals(txn, "step", ids)
    _drop_deliveries(txn, "step", ids)
    _drop_dead(txn, [], ids)
    txn.execute(_DROP_STEPS, {"rows": json_list([step["pk"] for step in steps])})
    for step in steps:
        loose.blocks.update(row for row in (step["block"],) if row is not None)
        loose.nodes.update(row for row in (step["prompt_node"], step["reply_node"]) if row is not None)
        loose.tools.update(row for row in (step["tools"],) if row is not None)
        txn.count(counters.CHANNEL_STEPS + step["channel"], -1)
    txn.count(counters.STEPS, -len(steps))
    txn.count(counters.STEPS_EXCLUDED, -sum(bool(step["excluded"]) for step in steps))
    txn.count(counters.TOKENS_FLAT, -sum(step["id_count"] for step in steps))
    txn.count(counters.TOKENS_IN_TAILS, -sum(step["id_count"] % BLOCK_SIZE for step in steps))
    txn.count(counters.TOKENS_SAMPLED, -sum(step["sampled"] for step in steps))


def _finish(txn: Transaction, row: Row) -> None:
    trajectory_id = row["trajectory_id"]
    _drop_signals(txn, "trajectory", [trajectory_id])
    _drop_waiting(txn, trajectory_id)
    _drop_dead(txn, [trajectory_id], [])
    txn.execute(_DROP_TRAJECTORY, {"row": row["pk"]})
    txn.count(counters.TRAJECTORIES + row["status"], -1)
    txn.count(counters.READINESS + "excluded", -1)
    txn.count(counters.CHANNEL_TRAJECTORIES + row["channel"], -1)
    if row["group_id"] is not None:
        _leave_group(txn, row)


def _leave_group(txn: Transaction, row: Row) -> None:
    """One member less; without members the group goes too."""
    member = groups.member_from(row)
    groups.count(txn, member._replace(readiness="excluded", excluded_reason=DELETING), None)
    group = groups.find(txn, row["group_id"])
    if group is None or group.members:
        return
    txn.execute(_DROP_GROUP, {"id": group.group_id})
    txn.count(counters.GROUPS + group.state, -1)
    _drop_deliveries(txn, "group", [group.group_id])
    _drop_deliveries(txn, "pair", ["group:" + group.group_id])


def _drop_signals(txn: Transaction, target: str, ids: Sequence[str]) -> int:
    bound = {"of": target, "ids": json_list(ids)}
    rewards = len(txn.execute(_DROP_REWARDS, bound))
    txn.count(counters.REWARDS, -rewards)
    annotations = len(txn.execute(_DROP_ANNOTATIONS, bound))
    txn.count(counters.ANNOTATIONS, -annotations)
    awaited = len(txn.execute(_DROP_AWAITED, bound))
    txn.count(counters.AWAITED, -awaited)
    feedback = txn.execute(_DROP_FEEDBACK, bound)
    for row in feedback:
        txn.count(counters.FEEDBACK + row["kind"], -1)
    if pairs := ["comparison:" + row["feedback_id"] for row in feedback if row["kind"] == "comparison"]:
        _drop_deliveries(txn, "pair", pairs)
    return rewards + annotations + awaited + len(feedback)


def _drop_waiting(txn: Transaction, trajectory_id: str) -> int:
    """Signals of the trajectory on steps that never came."""
    if not txn.counter(counters.AWAITED):
        return 0
    steps: set[str] = set()
    for table, statement in _WAITING.items():
        for row in txn.execute(statement, {"id": trajectory_id}):
            steps.add(row["target_id"])
            name = {"rewards": counters.REWARDS, "annotations": counters.ANNOTATIONS}.get(table)
            txn.count(name or counters.FEEDBACK + row["of_kind"], -1)
    # What others said of these steps goes too: the steps are the trajectory's.
    return len(steps) + _drop_signals(txn, "step", sorted(steps)) if steps else 0


def _drop_dead(txn: Transaction, trajectories: Sequence[str], steps: Sequence[str]) -> int:
    if not txn.counter(counters.DEAD_LETTERS):
        return 0  # The table has no index on the two, so it is looked through only where there is something in it.
    bound = {"trajectories": json_list(trajectories), "steps": json_list(steps)}
    gone = len(txn.execute(_DROP_DEAD, bound))
    txn.count(counters.DEAD_LETTERS, -gone)
    return gone


def _drop_deliveries(txn: Transaction, unit: str, ids: Sequence[str]) -> None:
    bound = {"of_unit": unit, "ids": json_list(ids)}
    for row in txn.execute(_DROP_DELIVERIES, bound):
        if row["state"] in counters.DELIVERY_STATES:
            txn.count(counters.delivery(row["state"], row["consumer"]), -1)
    for row in txn.execute(_DROP_BACKLOG, bound):
        txn.count(counters.BACKLOG + row["consumer"], -1)
    txn.execute(_DROP_UNITS, bound)


def _drop_from_snapshots(txn: Transaction, row: Row) -> None:
    """Rewards as they were at leases of the group, without those of the trajectory and its steps."""
    found = [
        *txn.execute(_SNAPSHOTS, {"of_unit": "group", "ids": json_list([row["group_id"]])}),
        *txn.execute(_SNAPSHOTS, {"of_unit": "pair", "ids": json_list(["group:" + row["group_id"]])}),
    ]
    if not found:
        return
    ids = {row["trajectory_id"], *(step[0] for step in txn.execute(_STEP_IDS, {"row": row["pk"]}))}
    for unit in found:
        rewards = msgspec.json.decode(unit["rewards"])
        kept = {name: values for name, values in rewards.items() if name not in ids}
        if len(kept) < len(rewards):
            values = {"of_batch": unit["batch"], "of_key": unit["key"], "rewards": json_or_none(kept)}
            txn.execute(_SET_SNAPSHOT, values)
