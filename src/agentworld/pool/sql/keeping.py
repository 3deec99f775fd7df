"""Which trajectories retention names, what holds them, and pins."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Text, and_, case, delete, exists, false, func, literal, or_, select, true
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.dataset_rules import OWNER_KIND
from agentworld.pool.keeping.records import Pin, Retention, Tombstone
from agentworld.pool.rules import DELETING
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.dataset_pins import dataset_pins
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.statements import Statement, compiled, json_list, parameter, sql, texts
from agentworld.pool.sql.transaction import Transaction
from agentworld.records.step import DEFAULT_RUN

_t, _s, _p = schema.trajectories, schema.steps, schema.policies
_ba, _bu, _bl, _pos, _g = schema.batches, schema.batch_units, schema.backlog, schema.positions, schema.groups
_pins, _f = schema.pins, schema.feedback
_dr = schema.dataset_rows

_new_pin = upsert(_pins).values(
    {name: parameter(name) for name in ("owner_kind", "owner", "target_id", "created_at")} | {"target": "trajectory"}
)
_PIN = sql(_new_pin.on_conflict_do_nothing().returning(_pins.c.target_id))
_THERE = sql(
    select(_t.c.trajectory_id).where(
        _t.c.trajectory_id.in_(texts("ids")), _t.c.excluded_reason.is_distinct_from(DELETING)
    )
)
_UNPIN = sql(
    delete(_pins)
    .where(_pins.c.owner_kind == parameter("of_kind"), _pins.c.owner == parameter("of_owner"))
    .returning(_pins.c.target_id)
)
_TOMBSTONES = sql(
    select(schema.tombstones)
    .where(schema.tombstones.c.pk > parameter("after"))
    .order_by(schema.tombstones.c.pk)
    .limit(parameter("limit"))
)
_OF_USER = sql(
    select(_t.c.trajectory_id).where(_t.c.user_id == parameter("user")).order_by(_t.c.pk).limit(parameter("limit"))
)
_LEFT_OVER = sql(
    select(_t.c.trajectory_id)
    .where(_t.c.readiness == "excluded", _t.c.excluded_reason == DELETING, _t.c.pk > parameter("above"))
    .order_by(_t.c.pk)
    .limit(parameter("limit"))
)


class Held(NamedTuple):
    """What holds a trajectory."""

    trajectory_id: str
    pinned: bool
    leased: bool
    waiting: bool

    def stays(self, include_waiting: bool) -> bool:
        """Whether retention may not take it."""
        return self.pinned or self.leased or (self.waiting and not include_waiting)


class Candidate(NamedTuple):
    """A trajectory that retention names."""

    pk: int
    steps: int
    held: Held


def pin(txn: Transaction, owner_kind: str, owner: str, trajectory_ids: Sequence[str]) -> tuple[int, list[str]]:
    """Pin what is there; returns how many pins are new, and the ids of which nothing is there."""
    there = {row[0] for row in txn.execute(_THERE, {"ids": json_list(trajectory_ids)})}
    if missing := [each for each in trajectory_ids if each not in there]:
        return 0, missing
    values = {"owner_kind": owner_kind, "owner": owner, "created_at": txn.now}
    new = sum(len(txn.execute(_PIN, {**values, "target_id": each})) for each in dict.fromkeys(trajectory_ids))
    return new, []


def unpin(txn: Transaction, owner_kind: str, owner: str) -> int:
    """Take all pins of an owner away; returns how many there were."""
    return len(txn.execute(_UNPIN, {"of_kind": owner_kind, "of_owner": owner}))


def read_pins(reader: Reader, filters: dict[str, str], limit: int) -> list[Pin]:
    """Pins, by owner and trajectory."""
    found = reader.execute(_pins_sql(tuple(sorted(filters))), {**filters, "limit": limit})
    pins = [Pin(row["owner_kind"], row["owner"], row["target_id"], row["created_at"]) for row in found]
    if filters.get("owner_kind", OWNER_KIND) == OWNER_KIND:
        pins += dataset_pins(reader, filters.get("owner"), filters.get("trajectory_id"), limit)
        pins = sorted(pins, key=lambda pin: (pin.owner_kind, pin.owner, pin.trajectory_id))[:limit]
    return pins


def read_tombstones(reader: Reader, after: int, limit: int) -> list[Tombstone]:
    """Tombstones with a sequence over `after`, in order."""
    found = reader.execute(_TOMBSTONES, {"after": after, "limit": limit})
    return [Tombstone(row["pk"], row["kind"], row["target_id"], row["reason"], row["at"]) for row in found]


def trajectories_of_user(reader: Reader, user: str, limit: int) -> list[str]:
    """Some trajectories of a user."""
    return [row[0] for row in reader.execute(_OF_USER, {"user": user, "limit": limit})]


def left_over(reader: Reader, limit: int) -> list[str]:
    """Trajectories whose removal was interrupted."""
    return [row[0] for row in reader.execute(_LEFT_OVER, {"above": 0, "limit": limit})]


def candidates(
    reader: Reader, retention: Retention, anything: bool, above: int, limit: int, now: float
) -> list[Candidate]:
    """The next trajectories, oldest first, that retention names after the primary key `above`.

    `anything`: whether the pool is over a size, so that any trajectory that has ended may go.
    """
    statement = _candidates_sql(
        retention.max_age is not None,
        retention.max_policy_lag is not None,
        anything,
        retention.channels is not None,
    )
    bound: dict[str, Any] = {"above": above, "limit": limit, "now": now}
    if not anything and retention.max_age is not None:
        bound["ended_before"] = now - retention.max_age
    if not anything and retention.max_policy_lag is not None:
        bound["lag"] = retention.max_policy_lag
    if retention.channels is not None:
        bound["channels"] = json_list(retention.channels)
    return [Candidate(row["pk"], row["step_count"], _held_from(row)) for row in reader.execute(statement, bound)]


def held(txn: Transaction, trajectory_ids: Sequence[str]) -> list[Held]:
    """What holds those of the trajectories that are there, as nobody can change it before the transaction ends."""
    bound = {"ids": json_list(trajectory_ids), "now": txn.now}
    return [_held_from(row) for row in txn.execute(_held_sql(), bound)]


def _held_from(row: Row) -> Held:
    return Held(row["trajectory_id"], bool(row["pinned"]), bool(row["leased"]), bool(row["waiting"]))


@functools.cache
def _pins_sql(filters: tuple[str, ...]) -> Statement:
    columns = {"owner_kind": _pins.c.owner_kind, "owner": _pins.c.owner, "trajectory_id": _pins.c.target_id}
    return sql(
        select(_pins)
        .where(_pins.c.target == "trajectory", *(columns[name] == parameter(name) for name in filters))
        .order_by(_pins.c.owner_kind, _pins.c.owner, _pins.c.target_id)
        .limit(parameter("limit"))
    )


@functools.cache
def _candidates_sql(by_age: bool, by_lag: bool, anything: bool, by_channel: bool) -> Statement:
    named: list[ColumnElement[bool]] = []
    if anything:
        named.append(true())
    else:
        if by_age:
            named.append(_t.c.completed_at <= parameter("ended_before"))
        if by_lag:
            named.append(_lag() > parameter("lag"))
    conditions = [
        _t.c.pk > parameter("above"),
        _t.c.status != "open",
        _t.c.excluded_reason.is_distinct_from(DELETING),
        or_(false(), *named),
    ]
    if by_channel:
        conditions.append(_t.c.channel.in_(texts("channels")))
    return compiled(
        select(
            _t.c.pk,
            _t.c.step_count,
            *_holds(),
        )
        .where(*conditions)
        .order_by(_t.c.pk)
        .limit(parameter("limit"))
    )


@functools.cache
def _held_sql() -> Statement:
    return compiled(select(*_holds()).where(among_texts(_t.c.trajectory_id, "ids")))


def _holds() -> list[ColumnElement[Any]]:
    return [
        _t.c.trajectory_id,
        _pinned().label("pinned"),
        _in_batches(_ba.c.deadline > parameter("now")).label("leased"),
        _waiting().label("waiting"),
    ]


def _lag() -> ColumnElement[Any]:
    """Versions that a trajectory's policy lies behind; null where another run speaks. As rules.staleness."""
    speaks = (_p.c.model == _t.c.policy_model, _p.c.current == 1)
    current = select(_p.c.version).where(*speaks, _p.c.run == _t.c.policy_run).scalar_subquery()
    unpublished = case((_t.c.policy_run == DEFAULT_RUN, 0))
    lag: ColumnElement[Any] = case((exists().where(*speaks), current), else_=unpublished) - _t.c.policy_version
    return lag


def _pinned() -> ColumnElement[bool]:
    by_owner = exists().where(_pins.c.target == "trajectory", _pins.c.target_id == _t.c.trajectory_id)
    return or_(by_owner, exists().where(_dr.c.trajectory_id == _t.c.trajectory_id))


def _in_batches(when: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a batch that nobody has ended, and of which `when` is true, holds the trajectory, one of its steps, its
    group, or a pair that it is of.
    """
    running = and_(_ba.c.pk == _bu.c.batch, _ba.c.state == "leased", when)
    steps = select(_s.c.step_id).where(_s.c.trajectory == _t.c.pk).correlate(_t)
    return or_(
        exists().where(_bu.c.key == _t.c.trajectory_id, running, _ba.c.unit == "trajectory"),
        exists().where(_bu.c.key == _t.c.group_id, running, _ba.c.unit == "group"),
        exists().where(_bu.c.key == literal("group:", Text) + _t.c.group_id, running, _ba.c.unit == "pair"),
        exists().where(_bu.c.key.in_(_comparisons(steps)), running, _ba.c.unit == "pair"),
        exists().where(_bu.c.key.in_(steps), running, _ba.c.unit == "step"),
    )


def _comparisons(steps: Any, *conditions: ColumnElement[bool]) -> Any:
    """The keys of pairs that humans made of the trajectory or of one of its steps."""
    sides = []
    for target, of_it in (("trajectory", [_t.c.trajectory_id]), ("step", None)):
        for side in (_f.c.target_id, _f.c.other_id):
            named = side.in_(steps) if of_it is None else side == of_it[0]
            sides.append(and_(_f.c.target == target, named))
    keys = select(literal("comparison:", Text) + _f.c.feedback_id)
    return keys.where(_f.c.kind == "comparison", or_(*sides), *conditions).correlate(_t, _pos)


def _waiting() -> ColumnElement[bool]:
    """Whether a consumer may still lease it: from its backlog, when a lease that ran out is taken back, as it has not
    come so far, or once its group closes.
    """
    steps = select(_s.c.step_id).where(_s.c.trajectory == _t.c.pk).correlate(_t)
    of_backlog = (_pos.c.consumer == _bl.c.consumer, _pos.c.unit == _bl.c.unit, _pos.c.channel == _bl.c.channel)

    def backlog(unit: str, key: Any) -> ColumnElement[bool]:
        return exists().where(*of_backlog, _bl.c.unit == unit, key)

    # What is of a channel, and what has a step in it.
    own_step = exists().where(
        _s.c.trajectory == _t.c.pk, _s.c.channel == _pos.c.channel, _s.c.excluded_reason.is_(None)
    )
    member = _t.alias()
    of_member = exists().where(
        member.c.group_id == _t.c.group_id,
        _s.c.trajectory == member.c.pk,
        _s.c.channel == _pos.c.channel,
        _s.c.excluded_reason.is_(None),
    )
    in_channel = or_(_pos.c.channel == _t.c.channel, own_step.correlate(_t, _pos))
    of_group = and_(
        _g.c.group_id == _t.c.group_id,
        _pos.c.unit.in_(["group", "pair"]),
        or_(_pos.c.channel.in_([_t.c.channel, _g.c.channel]), of_member.correlate(_t, _pos)),
    )
    # An open group is served whole, with its failures too where it says so.
    group_runs = exists().where(
        of_group, _g.c.state == "open", or_(_g.c.size.is_not(None), _g.c.timeout_at.is_not(None))
    )
    compared = _pos.alias()
    known = (
        select(compared.c.ready_seq)
        .where(
            compared.c.consumer == _pos.c.consumer,
            compared.c.unit == "comparison",
            compared.c.channel == _pos.c.channel,
        )
        .correlate(_pos)
        .scalar_subquery()
    )
    served = _t.c.readiness.in_(["complete", "ready"])
    comes = or_(
        backlog("trajectory", _bl.c.key == _t.c.trajectory_id),
        backlog("group", _bl.c.key == _t.c.group_id),
        backlog("step", _bl.c.key.in_(steps)),
        backlog("pair", _bl.c.key == literal("group:", Text) + _t.c.group_id),
        backlog("pair", _bl.c.key.in_(_comparisons(steps))),
        exists().where(_pos.c.unit.in_(["step", "trajectory"]), _t.c.ready_seq > _pos.c.ready_seq, in_channel),
        exists().where(of_group, func.coalesce(_g.c.ready_seq, _t.c.ready_seq) > _pos.c.ready_seq),
        exists().where(_pos.c.unit == "pair", _comparisons(steps, _f.c.pk > func.coalesce(known, 0)).limit(1).exists()),
    )
    return or_(and_(served, comes), group_runs, _in_batches(_ba.c.deadline <= parameter("now")))
