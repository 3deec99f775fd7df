"""Appending to the events inside a transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert

from agentworld.pool import schema
from agentworld.pool.sql.rows import json_or_none
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction

_EVENT = sql(
    insert(schema.events).values({n: parameter(n) for n in ("pk", "kind", "at", "trajectory_id", "step_id", "data")})
)


def add_event(
    txn: Transaction,
    kind: str,
    trajectory_id: str | None = None,
    step_id: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Append to the events."""
    values = {
        "pk": txn.next_pk("events"),
        "kind": kind,
        "at": txn.now,
        "trajectory_id": trajectory_id,
        "step_id": step_id,
    }
    txn.execute(_EVENT, {**values, "data": json_or_none(data)})
