"""Connections to PostgreSQL that outlive a test's pool: what a new one costs is most of what most tests would cost."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import pq

from agentworld.pool.postgres import connection
from agentworld.pool.postgres.connection import PostgresRow, RawConnection

_connect = connection.connect


class KeptConnections:
    """`connect` in place of that of pools: what they close is given to the next pool, as good as new."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._idle: dict[Any, list[_Kept]] = defaultdict(list)

    def connect(self, parameters: Mapping[str, Any], prepare_threshold: int | None) -> RawConnection:
        """See agentworld.pool.postgres.connection."""
        key = prepare_threshold, *sorted(parameters.items())
        while True:
            with self._guard:
                kept = self._idle[key].pop() if self._idle[key] else None
            if kept is None:
                return _Kept.of(_connect(parameters, prepare_threshold), self._idle[key])
            if kept.answers():
                return kept

    def close(self) -> None:
        """End them all."""
        for key in list(self._idle):
            for kept in self._idle.pop(key):
                kept.end()


class _Kept(psycopg.Connection[PostgresRow]):
    idle: list[_Kept]

    @classmethod
    def of(cls, raw: Any, idle: list[_Kept]) -> _Kept:
        """That connection, which goes to `idle` where it is closed."""
        raw.__class__, raw.idle = cls, idle
        kept: _Kept = raw
        return kept

    def close(self) -> None:
        if not self.closed and self.info.transaction_status == pq.TransactionStatus.IDLE and self.answers():
            while self.pgconn.notifies() is not None:
                pass
            self.idle.append(self)
        else:
            self.end()

    def answers(self) -> bool:
        """Whether it is still connected; nothing of before holds any more."""
        try:
            self.execute("UNLISTEN *; RESET ALL; SELECT pg_advisory_unlock_all()", prepare=False)
        except psycopg.Error:
            self.end()
            return False
        return True

    def end(self) -> None:
        """Close it, as a connection does that is not kept."""
        super().close()
