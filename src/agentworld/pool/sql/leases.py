"""Leasing on SQLite; states and rules are those of agentworld.pool.lease_rules.

A lease first looks with a read transaction whether enough is there, so that waiting consumers cost no writer anything;
then it looks again and takes inside a write transaction; then it reads the units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import and_, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.errors import NotFoundError
from agentworld.pool import rules, schema
from agentworld.pool.lease_rules import (
    LeaseState,
    check_ack,
    check_extend,
    check_release,
    empty_resumption,
    requirements,
)
from agentworld.pool.sql.connections import Database, Row
from agentworld.pool.sql.signals import add_event, current_policies
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import AvailableUnit, available_units, read_items
from agentworld.pool.sql.writer import Writer
from agentworld.query import parse
from agentworld.records import Batch, BatchSpec, Unit, check_id, new_id

_b, _d, _c, _u = schema.batches, schema.deliveries, schema.consumers, schema.batch_units
_COLUMNS = ("pk", "batch_id", "consumer", "unit", "method", "epoch", "deadline", "state")
_FIND = sql(select(*_b.c).where(_b.c.batch_id == parameter("id")))
_EXPIRED = sql(select(*_b.c).where(_b.c.state == "leased", _b.c.deadline <= parameter("now")).order_by(_b.c.pk))
_HELD = sql(select(*_b.c).where(_b.c.consumer == parameter("consumer"), _b.c.state == "leased").order_by(_b.c.pk))
_new_epoch = upsert(_c).values(name=parameter("name"), epoch=1)
_NEXT_EPOCH = sql(
    _new_epoch.on_conflict_do_update(index_elements=["name"], set_={"epoch": _c.c.epoch + 1}).returning(_c.c.epoch)
)
_INSERT = sql(insert(_b).values({name: parameter(name) for name in _COLUMNS}))
_INSERT_UNIT = sql(insert(_u).values(batch=parameter("batch"), key=parameter("key")))
_new_delivery = upsert(_d).values(
    {name: parameter(name) for name in ("consumer", "unit", "key", "batch")} | {"state": "leased", "count": 1}
)
_DELIVER = sql(
    _new_delivery.on_conflict_do_update(
        index_elements=["consumer", "unit", "key"],
        set_={"state": "leased", "batch": _new_delivery.excluded.batch, "count": _d.c.count + 1},
    ).returning(_d.c.count)
)
_STATE = sql(update(_b).where(_b.c.pk == parameter("row")).values(state=parameter("state")))
_DEADLINE = sql(update(_b).where(_b.c.pk == parameter("row")).values(deadline=parameter("deadline")))
_of_batch = (
    _d.c.consumer == parameter("of_consumer"),
    _d.c.unit == parameter("of_unit"),
    _d.c.key.in_(select(_u.c.key).where(_u.c.batch == parameter("row"))),
)
_held = and_(_d.c.state == "leased", _d.c.batch == parameter("row"))
_ACKNOWLEDGE = sql(
    update(_d)
    .where(*_of_batch, or_(_held, _d.c.state == "available"))
    .values(state="acknowledged", batch=parameter("row"))
)
_GIVE_BACK = sql(update(_d).where(*_of_batch, _held).values(state="available"))


class Leases:
    """The leases of one pool file."""

    def __init__(self, database: Database, writer: Writer, clock: Callable[[], float]) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        spec = spec.resolved()
        check_id(consumer, "consumer")
        needs = requirements(spec)
        if spec.where is not None:
            parse(spec.where, "steps" if spec.unit == "step" else "trajectories")
        now = self._clock()
        with self._database.reading() as connection:
            due = connection.execute(_EXPIRED, {"now": now})
            if not due:
                there = available_units(connection, spec, needs, consumer, now)
                if len(there) < (spec.min_size or 1):
                    return None
        taken = self._writer.submit(lambda txn: self._take(txn, spec, needs, consumer)).result()
        if taken is None:
            return None
        batch, units, counts = taken
        with self._database.reading() as connection:
            batch.items = read_items(connection, spec, units, counts)
            batch.policy = rules.batch_policy(batch.items, current_policies(connection))
        return batch

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""

        def operation(txn: Transaction) -> None:
            row = _find(txn, batch_id)
            if check_ack(batch_id, row["epoch"], epoch, _state(row, txn.now)):
                _end(txn, row, "acked")

        self._writer.submit(operation).result()

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""

        def operation(txn: Transaction) -> None:
            row = _find(txn, batch_id)
            if check_release(batch_id, row["epoch"], epoch, row["state"]):
                _end(txn, row, "released")

        self._writer.submit(operation).result()

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""

        def operation(txn: Transaction) -> float:
            row = _find(txn, batch_id)
            check_extend(batch_id, row["epoch"], epoch, _state(row, txn.now), seconds)
            txn.execute(_DEADLINE, {"row": row["pk"], "deadline": txn.now + seconds})
            return txn.now + seconds

        return self._writer.submit(operation).result()

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""
        check_id(consumer, "consumer")
        named = dict.fromkeys(applied)

        def operation(txn: Transaction) -> dict[str, list[str]]:
            result = empty_resumption()
            txn.execute(_NEXT_EPOCH, {"name": consumer})
            # Released first: what an applied batch lost to a later one of this consumer is then free to acknowledge.
            for row in txn.execute(_HELD, {"consumer": consumer}):
                if row["batch_id"] not in named:
                    _end(txn, row, "released")
                    result["released"].append(row["batch_id"])
            for batch_id in named:
                named_row = txn.one(_FIND, {"id": batch_id})
                if named_row is None or named_row["consumer"] != consumer:
                    result["unknown"].append(batch_id)
                    continue
                if named_row["state"] != "acked":
                    _end(txn, named_row, "acked")
                result["acknowledged"].append(batch_id)
            return result

        return self._writer.submit(operation).result()

    def _take(
        self,
        txn: Transaction,
        spec: BatchSpec,
        needs: tuple[str, ...],
        consumer: str,
    ) -> tuple[Batch, list[AvailableUnit], list[int]] | None:
        for row in txn.execute(_EXPIRED, {"now": txn.now}):
            _end(txn, row, "expired")
        units = available_units(txn.connection, spec, needs, consumer, txn.now)
        if len(units) < (spec.min_size or 1):
            return None
        unit: Unit = spec.unit or "step"
        epoch = txn.execute(_NEXT_EPOCH, {"name": consumer})[0][0]
        batch = Batch(
            batch_id=new_id("bat"),
            consumer=consumer,
            epoch=epoch,
            deadline=txn.now + spec.lease_seconds,
            unit=unit,
            method=spec.method,
            items=[],
        )
        columns = ("batch_id", "consumer", "unit", "method", "epoch", "deadline")
        pk = txn.next_pk("batches")
        txn.execute(_INSERT, {"pk": pk, **{name: getattr(batch, name) for name in columns}, "state": "leased"})
        counts = []
        for found in units:
            txn.execute(_INSERT_UNIT, {"batch": pk, "key": found.key})
            values = {"consumer": consumer, "unit": unit, "key": found.key, "batch": pk}
            counts.append(txn.execute(_DELIVER, values)[0][0])
        txn.count("batches.leased")
        data = {"batch_id": batch.batch_id, "consumer": consumer, "units": len(units)}
        add_event(txn, "batch.leased", data=data)
        return batch, units, counts


def _find(txn: Transaction, batch_id: str) -> Row:
    row = txn.one(_FIND, {"id": batch_id})
    if row is None:
        raise NotFoundError(f"no batch {batch_id!r}", path="batch_id")
    return row


def _state(row: Row, now: float) -> LeaseState:
    state: LeaseState = row["state"]
    return "expired" if state == "leased" and row["deadline"] <= now else state


def _end(txn: Transaction, row: Row, state: LeaseState) -> None:
    """Move the batch's units on: those it holds, and for an acknowledgement those that nobody holds."""
    moved = {"row": row["pk"], "of_consumer": row["consumer"], "of_unit": row["unit"]}
    txn.execute(_ACKNOWLEDGE if state == "acked" else _GIVE_BACK, moved)
    txn.execute(_STATE, {"row": row["pk"], "state": state})
    txn.count(f"batches.{row['state']}", -1)
    txn.count(f"batches.{state}")
    add_event(txn, f"batch.{state}", data={"batch_id": row["batch_id"], "consumer": row["consumer"]})
