"""Batches as the pool keeps them, and units that were set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, and_, func, null, or_, select, update

from agentworld.errors import NotFoundError
from agentworld.pool import schema
from agentworld.pool.base import check_limit, cursor_for, read_cursor
from agentworld.pool.batch_items import batch_unit
from agentworld.pool.counters import delivery
from agentworld.pool.explaining import Delivered
from agentworld.pool.lease_rules import check_batch_state
from agentworld.pool.results import Page
from agentworld.pool.sql import backlog
from agentworld.pool.sql.backlog import Scope, of_scope
from agentworld.pool.sql.batch_rows import lease_state
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.lookups import among_texts, unindexed
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.signals import add_event
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import BatchRecord, BatchSpec, BatchState, BatchUnit, PoisonedUnit

_b, _d, _u = schema.batches, schema.deliveries, schema.batch_units
_spec = msgspec.json.Decoder(BatchSpec)
_units = select(func.count()).where(_u.c.batch == _b.c.pk).scalar_subquery().label("unit_count")
_FIND = sql(select(*_b.c, _units).where(_b.c.batch_id == parameter("id")))
_UNITS = sql(select(_u.c.key, _u.c.rewards).where(_u.c.batch == parameter("row")).order_by(_u.c.place, _u.c.key))

# A lease whose time is over has expired, before anything is written of it.
_over = and_(_b.c.state == "leased", _b.c.deadline <= parameter("now"))
_IN_STATE: dict[str | None, ColumnElement[bool] | None] = {
    None: None,
    "leased": and_(_b.c.state == "leased", _b.c.deadline > parameter("now")),
    "expired": or_(_b.c.state == "expired", _over),
    "acked": unindexed(_b.c.state == "acked"),  # Nearly all are.
    "released": _b.c.state == "released",
}
_PAGES = {
    (by_consumer, state): sql(
        select(*_b.c, _units)
        .where(
            _b.c.pk < parameter("below"),
            *([_b.c.consumer == parameter("consumer")] if by_consumer else []),
            *([] if condition is None else [condition]),
        )
        .order_by(_b.c.pk.desc())
        .limit(parameter("limit"))
    )
    for by_consumer in (False, True)
    for state, condition in _IN_STATE.items()
}
_DELIVERED = sql(
    select(_d.c.state, _d.c.count, _d.c.reason, _b.c.batch_id, _b.c.deadline)
    .join_from(_d, _b, _d.c.batch == _b.c.pk, isouter=True)
    .where(of_scope(_d), _d.c.key == parameter("key"))
)
_POISONED = sql(
    select(_d.c.unit, _d.c.key, _d.c.count, _d.c.reason).where(
        _d.c.consumer == parameter("consumer"), _d.c.state == "poisoned"
    )
)
_NAMED = sql(
    select(_d.c.unit, _d.c.key, _d.c.batch, _d.c.channel).where(
        _d.c.consumer == parameter("consumer"), _d.c.state == "poisoned", among_texts(_d.c.key, "keys")
    )
)
_REQUEUE = sql(
    update(_d)
    .where(
        _d.c.consumer == parameter("of_consumer"),
        _d.c.unit == parameter("of_unit"),
        _d.c.key == parameter("of_key"),
        _d.c.channel == parameter("of_channel"),
    )
    .values({"state": "available", "count": 0, "reason": null()})
)


def get_batch(reader: Reader, batch_id: str, now: float) -> BatchRecord:
    """One batch with its units; NotFoundError where there is none."""
    rows = reader.execute(_FIND, {"id": batch_id})
    if not rows:
        raise NotFoundError(f"no batch {batch_id!r}", path="batch_id")
    units = reader.execute(_UNITS, {"row": rows[0]["pk"]})
    kept = [batch_unit(rows[0]["unit"], row["key"], from_json(row["rewards"], {})) for row in units]
    return _record(rows[0], now, kept)


def list_batches(
    reader: Reader, consumer: str | None, state: BatchState | None, cursor: str | None, limit: int, now: float
) -> Page[BatchRecord]:
    """One page, the newest first, without units."""
    check_batch_state(state)
    check_limit(limit)
    before = read_cursor(cursor, "newest")
    bound: dict[str, Any] = {"below": 2**62 if before is None else before, "limit": limit + 1, "now": now}
    if consumer is not None:
        bound["consumer"] = consumer
    rows = reader.execute(_PAGES[consumer is not None, state], bound)
    more = cursor_for(rows[limit - 1]["pk"], "newest") if len(rows) > limit else None
    return Page([_record(row, now, []) for row in rows[:limit]], more)


def delivered(reader: Reader, scope: Scope, key: str, now: float) -> Delivered:
    """Where a unit stands with a consumer."""
    rows = reader.execute(_DELIVERED, {**scope.bound, "key": key})
    if not rows:
        return Delivered()
    [row] = rows
    if row["state"] == "leased" and row["deadline"] <= now:
        return Delivered(deliveries=row["count"])
    batch = row["batch_id"] if row["state"] in ("leased", "acknowledged") else None
    deadline = row["deadline"] if row["state"] == "leased" else None
    return Delivered(row["state"], row["count"], batch, deadline, row["reason"])


def poisoned(reader: Reader, consumer: str) -> list[PoisonedUnit]:
    """The consumer's units that were set aside."""
    # Sorted here: with an order, SQLite walks all deliveries of the consumer instead of the index of these.
    rows = sorted(reader.execute(_POISONED, {"consumer": consumer}), key=lambda row: (row["unit"], row["key"]))
    return [
        PoisonedUnit(
            consumer=consumer, unit=row["unit"], key=row["key"], deliveries=row["count"], reason=row["reason"] or ""
        )
        for row in rows
    ]


def requeue(txn: Transaction, consumer: str, keys: Sequence[str]) -> int:
    """Hand poisoned units out again as if for the first time; returns how many there were."""
    rows = txn.execute(_NAMED, {"consumer": consumer, "keys": json_list(list(keys))})
    for row in rows:
        backlog.put_back(txn, Scope(consumer, row["unit"], row["channel"]), row["batch"], [row["key"]])
        of = {"of_consumer": consumer, "of_unit": row["unit"], "of_key": row["key"], "of_channel": row["channel"]}
        txn.execute(_REQUEUE, of)
        txn.count(delivery("poisoned", consumer), -1)
        add_event(txn, "unit.requeued", data={"consumer": consumer, "unit": row["unit"], "key": row["key"]})
    return len(rows)


def _record(row: Row, now: float, units: list[BatchUnit]) -> BatchRecord:
    return BatchRecord(
        batch_id=row["batch_id"],
        consumer=row["consumer"],
        unit=row["unit"],
        method=row["method"],
        channel=row["channel"] or "train",
        state=lease_state(row, now),
        epoch=row["epoch"],
        deadline=row["deadline"],
        spec=None if row["spec"] is None else _spec.decode(row["spec"]),
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        unit_count=row["unit_count"],
        units=units,
    )
