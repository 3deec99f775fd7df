"""The rows of batches, their units and deliveries, and what the end of a lease does to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import Text, and_, bindparam, case, insert, literal, null, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.batch_items import kept_unit
from agentworld.pool.counters import BATCHES, delivery
from agentworld.pool.lease_rules import LeaseState
from agentworld.pool.schema import Whole
from agentworld.pool.sql import backlog
from agentworld.pool.sql.backlog import Scope, Waiting
from agentworld.pool.sql.connections import Asked, Reader, Row
from agentworld.pool.sql.items import TakenUnit
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.rows import json_or_none
from agentworld.pool.sql.signals import add_event
from agentworld.pool.sql.statements import json_list, parameter, sql, texts
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
_EPOCH = sql(select(_c.c.epoch).where(_c.c.name == parameter("consumer")))
_SET_EPOCH = sql(update(_c).where(_c.c.name == parameter("consumer")).values(epoch=parameter("new_epoch")))
_INSERT = sql(
    insert(_b).values({name: parameter(name) for name in (*_BATCH, "pk", "state", "channel", "spec", "created_at")})
)
_INSERT_UNIT = sql(insert(_u).values({column.name: parameter(column.name) for column in _u.c}))
_key = texts("keys").subquery().c.value
_taken = select(
    *(backlog.text_of(name) for name in Scope._fields),
    _key,
    literal("leased", Text),
    bindparam("row", required=False, type_=Whole),
    literal(1, Whole),
).where(_key.is_not(None))  # SQLite needs a condition before ON CONFLICT.
_new_delivery = upsert(_d).from_select([*Scope._fields, "key", "state", "batch", "count"], _taken)
_DELIVER = sql(
    _new_delivery.on_conflict_do_update(
        index_elements=["consumer", "unit", "key", "channel"],
        set_={"state": "leased", "batch": _new_delivery.excluded.batch, "count": _d.c.count + 1},
    )
)
_set = select(
    *(backlog.text_of(name) for name in Scope._fields),
    _key,
    backlog.text_of("state"),
    backlog.text_of("reason"),
    literal(0, Whole),
).where(_key.is_not(None))
_aside = upsert(_d).from_select([*Scope._fields, "key", "state", "reason", "count"], _set)
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
_of_batch = (
    _d.c.consumer == parameter("of_consumer"),
    _d.c.unit == parameter("of_unit"),
    _d.c.channel == parameter("of_channel"),
    among_texts(_d.c.key, "keys"),
)
# By the batch's id, so that they can be asked for together with its row. A unit is the batch's own, or free.
_standing = case(
    (_d.c.state.in_(("available", "poisoned")), _d.c.state),
    (and_(_d.c.state == "leased", _d.c.batch == _u.c.batch), "own"),
    else_=null(),
)
_UNITS = sql(
    select(_u.c.key, backlog.delivered(_standing, _b, key=_u.c.key).label("standing"))
    .join_from(_b, _u, _u.c.batch == _b.c.pk)
    .where(_b.c.batch_id == parameter("id"))
)
_MOVE = sql(update(_d).where(*_of_batch).values(state=parameter("moved_to"), batch=parameter("row")))


# Of a lease and its end.
STATEMENTS = (_EXPIRED, _EPOCH, _SET_EPOCH, _INSERT, _INSERT_UNIT, _DELIVER, _FIND, _UNITS, _MOVE, _STATE)


def find(txn: Transaction, batch_id: str) -> Row | None:
    """The batch's row."""
    return txn.one(_FIND, {"id": batch_id})


def foresee_end(txn: Transaction, batch_id: str) -> None:
    """A batch is to be found and to end."""
    txn.connection.foresee([(_FIND, {"id": batch_id}), (_UNITS, {"id": batch_id})])


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
    return reader.execute(*ask_expired(now, limit))


def ask_expired(now: float, limit: int) -> Asked:
    """What `expired` asks."""
    return _EXPIRED, {"now": now, "limit": limit}


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


def ask_epoch(consumer: str) -> Asked:
    """What `advance_epoch` asks."""
    return _EPOCH, {"consumer": consumer}


def advance_epoch(txn: Transaction, consumer: str) -> int:
    """As `next_epoch`, for a consumer that is there."""
    epoch = int(txn.execute(*ask_epoch(consumer))[0]["epoch"]) + 1
    txn.execute(_SET_EPOCH, {"consumer": consumer, "new_epoch": epoch})
    return epoch


def set_deadline(txn: Transaction, row: int, deadline: float) -> None:
    """Move the end of a lease."""
    txn.execute(_DEADLINE, {"row": row, "deadline": deadline})


def insert_batch(txn: Transaction, spec: BatchSpec, batch: Batch, units: Sequence[tuple[Waiting, TakenUnit]]) -> None:
    """Write the batch, and take its units out of the backlog, in which they are."""
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
                "rewards": json_or_none(kept_unit(batch.unit, unit.members, unit.rewards)),
            }
            for waiting, unit in units
        ],
    )
    keys = [unit.key for _, unit in units]
    scope = Scope(batch.consumer, batch.unit, spec.channel)
    txn.execute(_DELIVER, {**scope.bound, "keys": json_list(keys), "row": pk})
    backlog.remove(txn, scope, keys)
    txn.count(BATCHES + "leased")
    txn.count(delivery("leased", batch.consumer), len(keys))
    add_event(txn, "batch.leased", data={"batch_id": batch.batch_id, "consumer": batch.consumer, "units": len(units)})


def end_batch(txn: Transaction, row: Row, state: LeaseState) -> None:
    """Move the batch's units on: those it holds, and for an acknowledgement those that nobody holds."""
    scope = Scope(row["consumer"], row["unit"], row["channel"])
    standing = txn.execute(_UNITS, {"id": row["batch_id"]})
    own = [unit["key"] for unit in standing if unit["standing"] == "own"]
    if state == "acked":
        free = [unit["key"] for unit in standing if unit["standing"] in ("available", "poisoned")]
        backlog.take_out(txn, scope, free)
        _move(txn, scope, row["pk"], [*own, *free], "acknowledged")
        poisoned = sum(unit["standing"] == "poisoned" for unit in standing)
        txn.count(delivery("poisoned", scope.consumer), -poisoned)
        txn.count(delivery("leased", scope.consumer), -len(own))
        txn.count(delivery("acknowledged", scope.consumer), len(own) + len(free))
    else:
        backlog.put_back(txn, scope, row["pk"], own)
        _move(txn, scope, row["pk"], own, "available")
        txn.count(delivery("leased", scope.consumer), -len(own))
    txn.execute(_STATE, {"row": row["pk"], "state": state, "ended_at": txn.now})
    txn.count(BATCHES + row["state"], -1)
    txn.count(BATCHES + state)
    add_event(txn, f"batch.{state}", data={"batch_id": row["batch_id"], "consumer": row["consumer"]})


def _move(txn: Transaction, scope: Scope, row: int, keys: list[str], state: str) -> None:
    if keys:
        of = {f"of_{name}": value for name, value in scope.bound.items()}
        txn.execute(_MOVE, {**of, "keys": json_list(keys), "row": row, "moved_to": state})


def set_aside(txn: Transaction, scope: Scope, walk: Walk) -> None:
    """Take out of the backlog what a walk found to have no business there, and note what was dropped and why."""
    keys = [*walk.gone, *walk.aside]
    if not keys:
        return
    backlog.remove(txn, scope, keys)
    named: dict[tuple[str, str], list[str]] = {}
    dropped: Counter[str] = Counter()
    for one in walk.aside.values():
        state = "poisoned" if one.why == "poisoned" else "dropped"
        named.setdefault((state, one.reason), []).append(one.unit.key)
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
    # Few reasons are many units'.
    for (state, reason), own in named.items():
        txn.execute(_SET_ASIDE, {**scope.bound, "keys": json_list(own), "state": state, "reason": reason})
    if dropped:
        add_event(txn, "batch.dropped", data={"consumer": scope.consumer, "unit": scope.unit, **dropped})
