"""Appending to the events inside a transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert

from agentworld.pool import schema
from agentworld.pool.sql.rows import json_or_none
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction

EVENT = sql(
    insert(schema.events).values({n: parameter(n) for n in ("pk", "kind", "at", "trajectory_id", "step_id", "data")})
)


class Events:
    """Events of one operation: numbered as they are added, written together by `write`."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._rows: list[dict[str, Any]] = []

    def add(
        self,
        kind: str,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Append one."""
        self._rows.append(
            {
                "pk": self._txn.next_pk("events"),
                "kind": kind,
                "at": self._txn.now,
                "trajectory_id": trajectory_id,
                "step_id": step_id,
                "data": json_or_none(data),
            }
        )

    def write(self) -> None:
        """Write what was added."""
        self._txn.many(EVENT, self._rows)
        self._rows = []


def add_event(
    txn: Transaction,
    kind: str,
    trajectory_id: str | None = None,
    step_id: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Append one event."""
    events = Events(txn)
    events.add(kind, trajectory_id, step_id, data)
    events.write()
