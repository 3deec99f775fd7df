"""Signals, events and what was rejected."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from agentworld.pool import schema
from agentworld.pool.base import check_after, check_limit
from agentworld.pool.results import DeadLetter
from agentworld.pool.sql import signals
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.store_base import SqlStore
from agentworld.records import Event, Reward

_e, _d = schema.events.c, schema.dead_letters.c
_EVENTS = sql(select(schema.events).where(_e.pk > parameter("after")).order_by(_e.pk).limit(parameter("limit")))
_DEAD = sql(select(schema.dead_letters).where(_d.pk > parameter("after")).order_by(_d.pk).limit(parameter("limit")))


class SignalMethods(SqlStore):
    """Rewards, feedback, annotations, events, dead letters."""

    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool."""
        return self._writer.submit(lambda txn: signals.add_rewards(txn, rewards)).result()

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """See Pool."""
        with self._database.reading() as connection:
            found = connection.execute(_EVENTS, {"after": check_after(after), "limit": check_limit(limit)})
        return [
            Event(
                sequence=row["pk"],
                kind=row["kind"],
                at=row["at"],
                trajectory_id=row["trajectory_id"],
                step_id=row["step_id"],
                data=from_json(row["data"], {}),
            )
            for row in found
        ]

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """See Pool."""
        with self._database.reading() as connection:
            found = connection.execute(_DEAD, {"after": check_after(after), "limit": check_limit(limit)})
        return [
            DeadLetter(*(row[n] for n in ("pk", "step_id", "trajectory_id", "reason", "record", "at"))) for row in found
        ]
