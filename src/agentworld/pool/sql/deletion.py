"""Taking trajectories out of the pool with all that hangs on them, in bounded transactions.

The first transaction makes trajectories unservable and takes them out of every backlog, so that nobody is handed half
of one; then their steps go, some in each transaction; the one that takes the last step of a trajectory takes its row.
What was interrupted is gone on with, since the trajectory carries the mark DELETING. On request (`bury`) it also leaves
a tombstone, and pins and leases do not hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import msgspec
from sqlalchemy import and_, delete, exists, insert, null, or_, select, tuple_, update

from agentworld.forest import BLOCK_SIZE
from agentworld.pool import counters, schema
from agentworld.pool.batch_items import without_targets
from agentworld.pool.group_rules import Member
from agentworld.pool.rules import DELETING
from agentworld.pool.sql import datasets, groups
from agentworld.pool.sql.call_marks import forget_marks
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.events import Events
from agentworld.pool.sql.garbage import Loose
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.rows import json_or_none
from agentworld.pool.sql.standing import close_due_of
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import FeedbackKind

STEPS_AT_ONCE = 200

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
    )
    .where(among_texts(_t.c.trajectory_id, "ids"))
    .order_by(_t.c.pk)
)
_MARK = sql(
    update(_t)
    .where(among_integers(_t.c.pk, "rows"))
    .values(excluded_reason=DELETING, readiness="excluded", ready_seq=null(), usable_steps=0)
)
_STEPS = sql(
    select(
        _s.c.pk,
        _s.c.step_id,
        _s.c.trajectory,
        _s.c.channel,
        _s.c.block,
        _s.c.prompt_node,
        _s.c.reply_node,
        _s.c.tools,
        _s.c.id_count,
        _s.c.sampled,
        _s.c.excluded_reason.is_not(None).label("excluded"),
    )
    .where(among_integers(_s.c.trajectory, "rows"))
    .order_by(_s.c.trajectory, _s.c.pk)
    .limit(parameter("limit"))
)
_STEP_IDS = sql(select(_s.c.step_id).where(among_integers(_s.c.trajectory, "rows")))
_DROP_STEPS = sql(delete(_s).where(among_integers(_s.c.pk, "rows")))
_EXCHANGES = sql(
    select(_x.c.pk, _x.c.trajectory, _x.c.status)
    .where(among_integers(_x.c.trajectory, "rows"))
    .order_by(_x.c.trajectory, _x.c.pk)
    .limit(parameter("limit"))
)
_DROP_EXCHANGES = sql(delete(_x).where(among_integers(_x.c.pk, "rows")))
_DROP_DECISIONS = sql(delete(schema.decisions).where(among_integers(schema.decisions.c.trajectory, "rows")))
_DROP_TRAJECTORIES = sql(delete(_t).where(among_integers(_t.c.pk, "rows")))


def _on_targets(table: Any) -> Any:
    return and_(table.c.target == parameter("of"), among_texts(table.c.target_id, "ids"))


_DROP_REWARDS = sql(delete(_r).where(_on_targets(_r)).returning(_r.c.pk))
_DROP_ANNOTATIONS = sql(delete(_a).where(_on_targets(_a)).returning(_a.c.pk))
_DROP_AWAITED = sql(delete(_aw).where(_on_targets(_aw)).returning(_aw.c.target))
_DROP_REVIEWS = sql(delete(schema.reviews).where(_on_targets(schema.reviews)))
_DROP_EVALUATIONS = sql(delete(schema.evaluations).where(_on_targets(schema.evaluations)))
_DROP_FEEDBACK = sql(
    delete(_f)
    .where(or_(_on_targets(_f), and_(_f.c.target == parameter("of"), among_texts(_f.c.other_id, "ids"))))
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
            among_texts(table.c.of_trajectory, "ids"),
        )
        .returning(table.c.target_id, (table.c.kind if table is _f else table.c.name).label("of_kind"))
    )
    for table in (_r, _a, _f)
}
_dead = schema.dead_letters
_DROP_DEAD = sql(
    delete(_dead)
    .where(or_(among_texts(_dead.c.trajectory_id, "trajectories"), among_texts(_dead.c.step_id, "steps")))
    .returning(_dead.c.pk)
)
_consumer_names = select(schema.consumers.c.name)
_DROP_DELIVERIES = sql(
    delete(_d)
    .where(_d.c.consumer.in_(_consumer_names), _d.c.unit == parameter("of_unit"), among_texts(_d.c.key, "ids"))
    .returning(_d.c.state, _d.c.consumer)
)
_pos = schema.positions.c
# Named in full, so that the primary key finds them.
_backlogs = select(_pos.consumer, _pos.unit, _pos.channel).where(_pos.unit == parameter("of_unit"))
_DROP_BACKLOG = sql(
    delete(_bl)
    .where(tuple_(_bl.c.consumer, _bl.c.unit, _bl.c.channel).in_(_backlogs), among_texts(_bl.c.key, "ids"))
    .returning(_bl.c.consumer)
)
_batch_of_unit = exists().where(_ba.c.pk == _bu.c.batch, _ba.c.unit == parameter("of_unit"))
_DROP_UNITS = sql(delete(_bu).where(among_texts(_bu.c.key, "ids"), _batch_of_unit))
_SNAPSHOTS = sql(
    select(_bu.c.batch, _bu.c.key, _bu.c.rewards).where(
        among_texts(_bu.c.key, "ids"), _batch_of_unit, _bu.c.rewards.is_not(None)
    )
)
_SET_SNAPSHOT = sql(
    update(_bu)
    .where(_bu.c.batch == parameter("of_batch"), _bu.c.key == parameter("of_key"))
    .values(rewards=parameter("rewards"))
)
_DROP_PINS = sql(
    delete(schema.pins).where(schema.pins.c.target == "trajectory", among_texts(schema.pins.c.target_id, "ids"))
)
_DROP_GROUPS = sql(delete(schema.groups).where(among_texts(schema.groups.c.group_id, "ids")))
_tomb = schema.tombstones
_KNOWN_TOMBS = sql(
    select(_tomb.c.target_id, _tomb.c.reason).where(
        _tomb.c.kind == parameter("of_kind"), among_texts(_tomb.c.target_id, "ids")
    )
)
_BURY = sql(insert(_tomb).values({name: parameter(name) for name in ("pk", "kind", "target_id", "reason", "at")}))


class Removed(NamedTuple):
    """What one transaction took. `there`: trajectories of which it took something; `gone`: those of which nothing is
    left; `steps`: how many went.
    """

    there: set[str]
    gone: set[str]
    steps: int


def bury(
    txn: Transaction,
    kind: str,
    target_ids: Sequence[str],
    reasons: Sequence[str | None],
    at: Sequence[float] | None = None,
) -> None:
    """Leave tombstones; one that is there stays as it is. `at`: when each was deleted, now by default."""
    known = {row[0] for row in txn.execute(_KNOWN_TOMBS, {"of_kind": kind, "ids": json_list(target_ids)})}
    times = [txn.now] * len(target_ids) if at is None else at
    told = zip(target_ids, reasons, times, strict=True)
    new = {each: (reason, when) for each, reason, when in told if each not in known}
    if not new:
        return
    first = txn.next_pk("tombstones", len(new))
    rows = [
        {"pk": first + number, "kind": kind, "target_id": each, "reason": reason, "at": when}
        for number, (each, (reason, when)) in enumerate(new.items())
    ]
    txn.many(_BURY, rows)
    txn.count(counters.TOMBSTONES, len(rows))


def remove(txn: Transaction, trajectory_ids: Sequence[str], loose: Loose) -> Removed:
    """Take the next part of trajectories, and add to `loose` what may have lost its last user.

    Those with a tombstone go on request: their steps get tombstones too, and an event tells of each.
    """
    ids = json_list(trajectory_ids)
    rows = txn.execute(_FIND, {"ids": ids})
    tombs: dict[str, str | None] = {}
    if txn.counter(counters.TOMBSTONES):
        found = txn.execute(_KNOWN_TOMBS, {"of_kind": "trajectory", "ids": ids})
        tombs = {row["target_id"]: row["reason"] for row in found}
    there = {row["trajectory_id"] for row in rows}
    gone = set(trajectory_ids) - there
    for trajectory_id in gone:
        dropped = _drop_signals(txn, "trajectory", [trajectory_id]) + _drop_waiting(txn, [trajectory_id])
        if dropped + _drop_dead(txn, [trajectory_id], []):
            there.add(trajectory_id)
    if not rows:
        return Removed(there, gone, 0)
    _hide(txn, [row for row in rows if row["excluded_reason"] != DELETING])
    if tombs:
        datasets.scrub(txn, [row["trajectory_id"] for row in rows if row["trajectory_id"] in tombs])
    of = {row["pk"]: row for row in rows}
    named = {"rows": json_list(list(of)), "limit": STEPS_AT_ONCE}
    steps = txn.execute(_STEPS, named)
    _drop_steps(txn, steps, loose)
    if tombs:
        buried = [step for step in steps if of[step["trajectory"]]["trajectory_id"] in tombs]
        reasons = [tombs[of[step["trajectory"]]["trajectory_id"]] for step in buried]
        bury(txn, "step", [step["step_id"] for step in buried], reasons)
    calls = txn.execute(_EXCHANGES, named)
    if calls:
        txn.execute(_DROP_EXCHANGES, {"rows": json_list([call["pk"] for call in calls])})
        txn.count(counters.EXCHANGES, -len(calls))
        txn.count(counters.EXCHANGES_FAILED, -sum(call["status"] == "error" for call in calls))
    # Both came in the order of trajectories, so those before the last one that came are whole.
    ends = [part[-1]["trajectory"] for part in (steps, calls) if len(part) == STEPS_AT_ONCE]
    whole = [row for row in rows if all(row["pk"] < end for end in ends)]
    _finish(txn, whole)
    events = Events(txn)
    for row in whole:
        gone.add(row["trajectory_id"])
        if row["trajectory_id"] in tombs:
            events.add("trajectory.deleted", row["trajectory_id"], channel=row["channel"])
    events.write()
    return Removed(there, gone, len(steps))


def _hide(txn: Transaction, rows: Sequence[Row]) -> None:
    """Nobody is handed them, or holds them, from now on."""
    if not rows:
        return
    ids = [row["trajectory_id"] for row in rows]
    txn.execute(_MARK, {"rows": json_list([row["pk"] for row in rows])})
    for row in rows:
        txn.count(counters.READINESS + row["readiness"], -1)
        txn.count(counters.READINESS + "excluded")
    txn.execute(_DROP_PINS, {"ids": json_list(ids)})
    _drop_deliveries(txn, "trajectory", ids)
    if grouped := [row for row in rows if row["group_id"] is not None]:
        _drop_from_snapshots(txn, grouped)
        # What was said of a whole group may tell of each member.
        txn.execute(_DROP_EVALUATIONS, {"of": "group", "ids": json_list([row["group_id"] for row in grouped])})
        groups.count_all(txn, [(groups.member_from(row), _hidden(row)) for row in grouped])


def _hidden(row: Row) -> Member:
    return groups.member_from(row)._replace(readiness="excluded", excluded_reason=DELETING)


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


def _finish(txn: Transaction, rows: Sequence[Row]) -> None:
    if not rows:
        return
    ids = [row["trajectory_id"] for row in rows]
    _drop_signals(txn, "trajectory", ids)
    _drop_waiting(txn, ids)
    _drop_dead(txn, ids, [])
    txn.execute(_DROP_DECISIONS, {"rows": json_list([row["pk"] for row in rows])})
    txn.execute(_DROP_TRAJECTORIES, {"rows": json_list([row["pk"] for row in rows])})
    for row in rows:
        txn.count(counters.TRAJECTORIES + row["status"], -1)
        txn.count(counters.READINESS + "excluded", -1)
        txn.count(counters.CHANNEL_TRAJECTORIES + row["channel"], -1)
    if grouped := [row for row in rows if row["group_id"] is not None]:
        _leave_groups(txn, grouped)


def _leave_groups(txn: Transaction, rows: Sequence[Row]) -> None:
    """Some members less; a rollout that is gone counts as ended where its group waits for so many. Groups without
    members go too.
    """
    groups.count_all(txn, [(_hidden(row), None) for row in rows])
    known = groups.load(txn, (row["group_id"] for row in rows))
    waiting = {name: one for name, one in known.items() if one.members and one.state == "open" and one.size is not None}
    if more := groups.count_gone(txn, waiting, map(groups.member_from, rows)):
        counted = {
            name: msgspec.structs.replace(waiting[name], ended=waiting[name].ended + n) for name, n in more.items()
        }
        close_due_of(txn, counted, counted)
    empty = [group for group in known.values() if not group.members]
    if not empty:
        return
    ids = [group.group_id for group in empty]
    txn.execute(_DROP_GROUPS, {"ids": json_list(ids)})
    for group in empty:
        txn.count(counters.GROUPS + group.state, -1)
    _drop_deliveries(txn, "group", ids)
    _drop_deliveries(txn, "pair", ["group:" + each for each in ids])


def _drop_signals(txn: Transaction, target: str, ids: Sequence[str]) -> int:
    bound = {"of": target, "ids": json_list(ids)}
    if target == "trajectory":
        forget_marks(txn, ids)
    rewards = len(txn.execute(_DROP_REWARDS, bound))
    txn.count(counters.REWARDS, -rewards)
    annotations = len(txn.execute(_DROP_ANNOTATIONS, bound))
    txn.count(counters.ANNOTATIONS, -annotations)
    awaited = len(txn.execute(_DROP_AWAITED, bound))
    txn.count(counters.AWAITED, -awaited)
    # No index finds the other side of a comparison, so feedback is looked through only where there is any.
    feedback = txn.execute(_DROP_FEEDBACK, bound) if _has_feedback(txn) else []
    for row in feedback:
        txn.count(counters.FEEDBACK + row["kind"], -1)
    if pairs := ["comparison:" + row["feedback_id"] for row in feedback if row["kind"] == "comparison"]:
        _drop_deliveries(txn, "pair", pairs)
    for statement in (_DROP_REVIEWS, _DROP_EVALUATIONS):
        txn.execute(statement, bound)
    return rewards + annotations + awaited + len(feedback)


def _has_feedback(txn: Transaction) -> bool:
    return any(txn.counter(counters.FEEDBACK + kind) for kind in get_args(FeedbackKind))


def _drop_waiting(txn: Transaction, trajectory_ids: Sequence[str]) -> int:
    """Signals of the trajectories on steps that never came."""
    if not txn.counter(counters.AWAITED):
        return 0
    steps: set[str] = set()
    for table, statement in _WAITING.items():
        for row in txn.execute(statement, {"ids": json_list(trajectory_ids)}):
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


def _drop_from_snapshots(txn: Transaction, rows: Sequence[Row]) -> None:
    """Rewards as they were at leases of the groups, without those of the trajectories and their steps."""
    named = list(dict.fromkeys(row["group_id"] for row in rows))
    found = [
        *txn.execute(_SNAPSHOTS, {"of_unit": "group", "ids": json_list(named)}),
        *txn.execute(_SNAPSHOTS, {"of_unit": "pair", "ids": json_list(["group:" + each for each in named])}),
    ]
    if not found:
        return
    steps = txn.execute(_STEP_IDS, {"rows": json_list([row["pk"] for row in rows])})
    ids = {row["trajectory_id"] for row in rows} | {step[0] for step in steps}
    for unit in found:
        rewards = msgspec.json.decode(unit["rewards"])
        if (kept := without_targets(rewards, ids)) != rewards:
            values = {"of_batch": unit["batch"], "of_key": unit["key"], "rewards": json_or_none(kept)}
            txn.execute(_SET_SNAPSHOT, values)
