"""The rows of batches, their units and deliveries, and what the end of a lease does to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Text, and_, case, insert, literal, null, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.batch_items import kept_unit
from agentworld.pool.counters import BATCHES, delivery
from agentworld.pool.lease_rules import LeaseState
from agentworld.pool.schema import Whole
from agentworld.pool.sql import backlog
from agentworld.pool.sql.backlog import Scope, Waiting
from agentworld.pool.sql.connections import Asked, Reader, Row
from agentworld.pool.sql.events import Events, add_event
from agentworld.pool.sql.items import TakenUnit
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.rows import json_or_none
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
    _u.c.key,
    literal("leased", Text),
    _u.c.batch,
    literal(1, Whole),
).where(_u.c.batch >= parameter("first"), _u.c.batch <= parameter("last"))
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
_of_batch = (
    _d.c.consumer == parameter("of_consumer"),
    _d.c.unit == parameter("of_unit"),
    _d.c.channel == parameter("of_channel"),
    among_texts(_d.c.key, "keys"),
)
_ACKNOWLEDGE = sql(update(_d).where(*_of_batch).values(state="acknowledged"))
_STATE = sql(
    update(_b).where(_b.c.pk == parameter("row")).values(state=parameter("state"), ended_at=parameter("ended_at"))
)
_DEADLINE = sql(update(_b).where(_b.c.pk == parameter("row")).values(deadline=parameter("deadline")))
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
_UNITS_OF = sql(
    select(_b.c.batch_id, _u.c.key, backlog.delivered(_standing, _b, key=_u.c.key).label("standing"))
    .join_from(_b, _u, _u.c.batch == _b.c.pk)
    .where(among_texts(_b.c.batch_id, "ids"))
)
_MOVE = sql(update(_d).where(*_of_batch).values(state=parameter("moved_to"), batch=parameter("row")))


# Of a lease and its end, alone and with others.
STATEMENTS = (
    *(_EXPIRED, _EPOCH, _SET_EPOCH, _INSERT, _INSERT_UNIT, _DELIVER, _FIND, _UNITS, _MOVE, _STATE),
    *(_BY_IDS, _UNITS_OF, _ACKNOWLEDGE),
)


def find(txn: Transaction, batch_id: str) -> Row | None:
    """The batch's row."""
    return txn.one(_FIND, {"id": batch_id})


def foresee_end(txn: Transaction, batch_id: str) -> None:
    """A batch is to be found and to end."""
    txn.connection.foresee([(_FIND, {"id": batch_id}), (_UNITS, {"id": batch_id})])


def foresee_ends(txn: Transaction, batch_ids: Sequence[str]) -> None:
    """These batches are to be found and to end."""
    bound = {"ids": json_list(list(batch_ids))}
    txn.connection.foresee([(_BY_IDS, bound), (_UNITS_OF, bound)])


def can_be_id(text: str) -> bool:
    """Whether a batch may have that id; they are made of ASCII, and other texts the engines may not hold."""
    return text.isascii() and text.isprintable()


def by_ids(txn: Transaction, batch_ids: Sequence[str]) -> dict[str, Row]:
    """The rows of those batches that are there."""
    asked = [batch_id for batch_id in batch_ids if can_be_id(batch_id)]
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
    """What `next_epochs` asks."""
    return _EPOCH, {"consumer": consumer}


def next_epochs(txn: Transaction, consumer: str, count: int, *, is_new: bool) -> int:
    """The first of so many numbers that the consumer's leases did not have yet; `is_new`: it may not be there."""
    first = next_epoch(txn, consumer) if is_new else int(txn.execute(*ask_epoch(consumer))[0]["epoch"]) + 1
    if count > 1 or not is_new:
        txn.execute(_SET_EPOCH, {"consumer": consumer, "new_epoch": first + count - 1})
    return first


def set_deadline(txn: Transaction, row: int, deadline: float) -> None:
    """Move the end of a lease."""
    txn.execute(_DEADLINE, {"row": row, "deadline": deadline})


def insert_batches(
    txn: Transaction,
    spec: BatchSpec,
    batches: Sequence[tuple[Batch, Sequence[TakenUnit]]],
    waiting: Sequence[Sequence[Waiting]],
) -> None:
    """Write batches of one consumer, and take their units out of the backlog, where they are `waiting`."""
    first = txn.next_pk("batches", len(batches))
    consumer, unit_kind = batches[0][0].consumer, batches[0][0].unit
    text = msgspec.json.encode(spec).decode()
    rows: list[dict[str, Any]] = []
    of_units: list[dict[str, Any]] = []
    told = Events(txn)
    for pk, ((batch, units), places) in enumerate(zip(batches, waiting, strict=True), start=first):
        values = {name: getattr(batch, name) for name in _BATCH}
        state = {"state": "leased", "channel": spec.channel, "spec": text, "created_at": txn.now}
        rows.append({**values, "pk": pk, **state})
        of_units += [
            {
                "batch": pk,
                "key": unit.key,
                "row_pk": place.row_pk,
                "place": place.place,
                "rank": place.rank,
                "rewards": json_or_none(kept_unit(unit_kind, unit.members, unit.rewards)),
            }
            for unit, place in zip(units, places, strict=True)
        ]
        about = {"batch_id": batch.batch_id, "consumer": consumer, "units": len(units)}
        told.add("batch.leased", data=about)
    txn.many(_INSERT, rows)
    txn.many(_INSERT_UNIT, of_units)
    keys = [unit["key"] for unit in of_units]
    scope = Scope(consumer, unit_kind, spec.channel)
    txn.execute(_DELIVER, {**scope.bound, "first": first, "last": first + len(batches) - 1})
    backlog.remove(txn, scope, keys)
    txn.count(BATCHES + "leased", len(batches))
    txn.count(delivery("leased", consumer), len(keys))
    told.write()


def acknowledge(txn: Transaction, rows: Mapping[str, Row]) -> None:
    """As `end_batch` of each of the batches, by their ids, that are leased and acknowledged now."""
    units: dict[str, list[Row]] = {batch_id: [] for batch_id in rows}
    if rows:
        for unit in txn.execute(_UNITS_OF, {"ids": json_list(list(rows))}):
            units[unit["batch_id"]].append(unit)
    held: dict[Scope, list[str]] = {}
    ended = []
    told = Events(txn)
    for batch_id, row in rows.items():
        standings = {unit["standing"] for unit in units[batch_id]}
        if standings - {"own", None}:
            end_batch(txn, row, "acked")
            continue
        scope = Scope(row["consumer"], row["unit"], row["channel"])
        held.setdefault(scope, []).extend(unit["key"] for unit in units[batch_id] if unit["standing"] == "own")
        ended.append({"row": row["pk"], "state": "acked", "ended_at": txn.now})
        txn.count(BATCHES + row["state"], -1)
        txn.count(BATCHES + "acked")
        told.add("batch.acked", data={"batch_id": batch_id, "consumer": row["consumer"]})
    for scope, keys in held.items():
        of = {f"of_{name}": value for name, value in scope.bound.items()}
        txn.execute(_ACKNOWLEDGE, {**of, "keys": json_list(keys)})
        txn.count(delivery("leased", scope.consumer), -len(keys))
        txn.count(delivery("acknowledged", scope.consumer), len(keys))
    txn.many(_STATE, ended)
    told.write()


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
