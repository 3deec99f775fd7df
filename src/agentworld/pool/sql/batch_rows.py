"""The rows of batches, their units and deliveries, and what the end of a lease does to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import and_, case, insert, null, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.counters import BATCHES, delivery
from agentworld.pool.lease_rules import LeaseState
from agentworld.pool.sql import backlog
from agentworld.pool.sql.backlog import Scope, Waiting
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.items import TakenUnit
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.rows import json_or_none
from agentworld.pool.sql.signals import add_event
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Batch, BatchSpec

if TYPE_CHECKING:
    from agentworld.pool.sql.walk import Walk

_b, _d, _c, _u = schema.batches, schema.deliveries, schema.consumers, schema.batch_units
_BATCH = ("batch_id", "consumer", "unit", "method", "epoch", "deadline")
_FIND = sql(select(*_b.c).where(_b.c.batch_id == parameter("id")))
_BY_IDS = sql(select(*_b.c).where(among_texts(_b.c.batch_id, "ids")))
_BY_PKS = sql(select(*_b.c).where(among_integers(_b.c.pk, "rows")).order_by(_b.c.pk))
_holder = backlog.delivered(case((_d.c.state == "leased", _d.c.batch), else_=null()), _b, key=_u.c.key)
_HOLDERS = sql(
    select(_holder.label("batch"))
    .join_from(_u, _b, _b.c.pk == _u.c.batch)
    .where(_u.c.batch == parameter("row"))
    .distinct()
)
_EXPIRED = sql(
    select(*_b.c)
    .where(_b.c.state == "leased", _b.c.deadline <= parameter("now"))
    .order_by(_b.c.deadline, _b.c.pk)
    .limit(parameter("limit"))
)
_HELD = sql(select(*_b.c).where(_b.c.consumer == parameter("consumer"), _b.c.state == "leased").order_by(_b.c.pk))
_new_epoch = upsert(_c).values(name=parameter("name"), epoch=1)
_NEXT_EPOCH = sql(
    _new_epoch.on_conflict_do_update(index_elements=["name"], set_={"epoch": _c.c.epoch + 1}).returning(_c.c.epoch)
)
_INSERT = sql(
    insert(_b).values({name: parameter(name) for name in (*_BATCH, "pk", "state", "channel", "spec", "created_at")})
)
_INSERT_UNIT = sql(insert(_u).values({column.name: parameter(column.name) for column in _u.c}))
_new_delivery = upsert(_d).values(
    {name: parameter(name) for name in ("consumer", "unit", "key", "channel", "batch")}
    | {"state": "leased", "count": 1}
)
_DELIVER = sql(
    _new_delivery.on_conflict_do_update(
        index_elements=["consumer", "unit", "key", "channel"],
        set_={"state": "leased", "batch": _new_delivery.excluded.batch, "count": _d.c.count + 1},
    )
)
_aside = upsert(_d).values(
    {name: parameter(name) for name in ("consumer", "unit", "key", "channel", "state", "reason")} | {"count": 0}
)
_SET_ASIDE = sql(
    _aside.on_conflict_do_update(
        index_elements=["consumer", "unit", "key", "channel"],
        set_={"state": _aside.excluded.state, "reason": _aside.excluded.reason},
    )
)
_STATE = sql(
    update(_b).where(_b.c.pk == parameter("row")).values(state=parameter("state"), ended_at=parameter("ended_at"))
)
_DEADLINE = sql(update(_b).where(_b.c.pk == parameter("row")).values(deadline=parameter("deadline")))
_KEYS = sql(select(_u.c.key).where(_u.c.batch == parameter("row")))
_of_batch = (
    _d.c.consumer == parameter("of_consumer"),
    _d.c.unit == parameter("of_unit"),
    _d.c.channel == parameter("of_channel"),
    among_texts(_d.c.key, "keys"),
)
_held = and_(_d.c.state == "leased", _d.c.batch == parameter("row"))
_free = _d.c.state.in_(("available", "poisoned"))
_ACKNOWLEDGE = sql(
    update(_d)
    .where(*_of_batch, or_(_held, _free))
    .values(state="acknowledged", batch=parameter("row"))
    .returning(_d.c.key)
)
_HELD_KEYS = sql(select(_d.c.key).where(*_of_batch, _held))
_FREE = sql(select(_d.c.key, _d.c.state).where(*_of_batch, _free))
_GIVE_BACK = sql(update(_d).where(*_of_batch, _held).values(state="available"))


def find(txn: Transaction, batch_id: str) -> Row | None:
    """The batch's row."""
    return txn.one(_FIND, {"id": batch_id})


def by_ids(txn: Transaction, batch_ids: Sequence[str]) -> dict[str, Row]:
    """The rows of those batches that are there; ids are made of ASCII, others the engines may not hold."""
    asked = [batch_id for batch_id in batch_ids if batch_id.isascii() and batch_id.isprintable()]
    return {row["batch_id"]: row for row in txn.execute(_BY_IDS, {"ids": json_list(asked)})}


def holders(txn: Transaction, row: Row) -> list[Row]:
    """Other batches that hold units of this one now."""
    found = txn.execute(_HOLDERS, {"row": row["pk"]})
    others = [one["batch"] for one in found if one["batch"] not in (None, row["pk"])]
    return txn.execute(_BY_PKS, {"rows": json_list(others)}) if others else []


def expired(reader: Reader, now: float, limit: int) -> list[Row]:
    """Up to `limit` batches that are leased though their time is over."""
    return reader.execute(_EXPIRED, {"now": now, "limit": limit})


def held(txn: Transaction, consumer: str) -> list[Row]:
    """The consumer's leased batches, the oldest first."""
    return txn.execute(_HELD, {"consumer": consumer})


def lease_state(row: Row, now: float) -> LeaseState:
    """The state of a batch; expired from its deadline on, before anything was written of that."""
    state: LeaseState = row["state"]
    return "expired" if state == "leased" and row["deadline"] <= now else state


def next_epoch(txn: Transaction, consumer: str) -> int:
    """A number that the consumer's leases did not have yet."""
    epoch: int = txn.execute(_NEXT_EPOCH, {"name": consumer})[0][0]
    return epoch


def set_deadline(txn: Transaction, row: int, deadline: float) -> None:
    """Move the end of a lease."""
    txn.execute(_DEADLINE, {"row": row, "deadline": deadline})


def insert_batch(txn: Transaction, spec: BatchSpec, batch: Batch, units: Sequence[tuple[Waiting, TakenUnit]]) -> None:
    """Write the batch, and take its units out of the backlog."""
    pk = txn.next_pk("batches")
    values = {name: getattr(batch, name) for name in _BATCH}
    text = msgspec.json.encode(spec).decode()
    txn.execute(
        _INSERT,
        {**values, "pk": pk, "state": "leased", "channel": spec.channel, "spec": text, "created_at": txn.now},
    )
    txn.many(
        _INSERT_UNIT,
        [
            {
                "batch": pk,
                "key": unit.key,
                "row_pk": waiting.row_pk,
                "place": waiting.place,
                "rank": waiting.rank,
                "rewards": json_or_none(unit.rewards),
            }
            for waiting, unit in units
        ],
    )
    keys = [unit.key for _, unit in units]
    of = {"consumer": batch.consumer, "unit": batch.unit, "channel": spec.channel}
    txn.many(_DELIVER, [{**of, "key": key, "batch": pk} for key in keys])
    backlog.take_out(txn, Scope(batch.consumer, batch.unit, spec.channel), keys)
    txn.count(BATCHES + "leased")
    txn.count(delivery("leased", batch.consumer), len(keys))
    add_event(txn, "batch.leased", data={"batch_id": batch.batch_id, "consumer": batch.consumer, "units": len(units)})


def end_batch(txn: Transaction, row: Row, state: LeaseState) -> None:
    """Move the batch's units on: those it holds, and for an acknowledgement those that nobody holds."""
    scope = Scope(row["consumer"], row["unit"], row["channel"])
    keys = [unit["key"] for unit in txn.execute(_KEYS, {"row": row["pk"]})]
    moved = {"row": row["pk"], "keys": json_list(keys), **{f"of_{name}": value for name, value in scope.bound.items()}}
    if state == "acked":
        free = txn.execute(_FREE, moved)
        backlog.take_out(txn, scope, [found["key"] for found in free])
        acknowledged = len(txn.execute(_ACKNOWLEDGE, moved))
        txn.count(delivery("poisoned", scope.consumer), -sum(found["state"] == "poisoned" for found in free))
        txn.count(delivery("leased", scope.consumer), len(free) - acknowledged)
        txn.count(delivery("acknowledged", scope.consumer), acknowledged)
    else:
        held_keys = [found["key"] for found in txn.execute(_HELD_KEYS, moved)]
        backlog.put_back(txn, scope, row["pk"], held_keys)
        txn.execute(_GIVE_BACK, moved)
        txn.count(delivery("leased", scope.consumer), -len(held_keys))
    txn.execute(_STATE, {"row": row["pk"], "state": state, "ended_at": txn.now})
    txn.count(BATCHES + row["state"], -1)
    txn.count(BATCHES + state)
    add_event(txn, f"batch.{state}", data={"batch_id": row["batch_id"], "consumer": row["consumer"]})


def set_aside(txn: Transaction, scope: Scope, walk: Walk) -> None:
    """Take out of the backlog what a walk found to have no business there, and note what was dropped and why."""
    keys = [*walk.gone, *walk.aside]
    if not keys:
        return
    backlog.take_out(txn, scope, keys)
    rows = []
    dropped: Counter[str] = Counter()
    for one in walk.aside.values():
        state = "poisoned" if one.why == "poisoned" else "dropped"
        rows.append({**scope.bound, "key": one.unit.key, "state": state, "reason": one.reason})
        txn.count(delivery(state, scope.consumer))
        if state == "dropped":
            dropped[one.why] += 1
        else:
            data = {
                "consumer": scope.consumer,
                "unit": scope.unit,
                "key": one.unit.key,
                "deliveries": one.unit.deliveries,
            }
            add_event(txn, "unit.poisoned", data=data)
    txn.many(_SET_ASIDE, rows)
    if dropped:
        add_event(txn, "batch.dropped", data={"consumer": scope.consumer, "unit": scope.unit, **dropped})
