"""Appending to the events inside a transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update

from agentworld.pool import schema
from agentworld.pool.events import TO_ALL, TOLD_TO_ALL, stored_channel
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.rows import json_or_none
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction

EVENT = sql(
    insert(schema.events).values(
        {n: parameter(n) for n in ("pk", "kind", "at", "trajectory_id", "step_id", "data", "channel")}
    )
)
_t, _e = schema.trajectories.c, schema.events.c
_CHANNELS = sql(select(_t.trajectory_id, _t.channel).where(among_texts(_t.trajectory_id, "ids")))
_MOVE = sql(update(schema.events).where(_e.trajectory_id == parameter("id")).values(channel=parameter("told_channel")))


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
        *,
        channel: str | None = None,
    ) -> None:
        """Append one. `channel`: of the trajectory or group that it is about; looked up where only the trajectory is
        named, which has to be there then.
        """
        self._rows.append(
            {
                "pk": self._txn.next_pk("events"),
                "kind": kind,
                "at": self._txn.now,
                "trajectory_id": trajectory_id,
                "step_id": step_id,
                "data": json_or_none(data),
                "channel": TO_ALL if kind in TOLD_TO_ALL else None if channel is None else stored_channel(channel),
            }
        )

    def write(self) -> None:
        """Write what was added."""
        if unknown := [row for row in self._rows if row["channel"] is None and row["trajectory_id"] is not None]:
            named = json_list(list(dict.fromkeys(row["trajectory_id"] for row in unknown)))
            channels = {row["trajectory_id"]: row["channel"] for row in self._txn.execute(_CHANNELS, {"ids": named})}
            for row in unknown:
                if row["trajectory_id"] in channels:
                    row["channel"] = stored_channel(channels[row["trajectory_id"]])
        self._txn.many(EVENT, self._rows)
        self._rows = []


def add_event(
    txn: Transaction,
    kind: str,
    trajectory_id: str | None = None,
    step_id: str | None = None,
    data: dict[str, Any] | None = None,
    *,
    channel: str | None = None,
) -> None:
    """Append one event, as `Events.add`."""
    events = Events(txn)
    events.add(kind, trajectory_id, step_id, data, channel=channel)
    events.write()


def move_events(txn: Transaction, trajectory_id: str, channel: str) -> None:
    """The trajectory turns out to be of another channel than its events say."""
    txn.execute(_MOVE, {"id": trajectory_id, "told_channel": stored_channel(channel)})
