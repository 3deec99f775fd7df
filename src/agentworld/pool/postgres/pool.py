"""The PostgreSQL store: many processes on many machines."""

from __future__ import annotations

from collections.abc import Callable

from agentworld.pool.postgres.database import LOCK_SECONDS, PostgresDatabase
from agentworld.pool.postgres.keeping import PostgresKeeping
from agentworld.pool.sql.store import SqlPool


class PostgresPool(PostgresKeeping, SqlPool):
    """A pool in one schema of a PostgreSQL database. `url` is described in agentworld.pool.postgres.address.

    `clock`: seconds since the epoch, by default the server's (see ServerClock); `lock_seconds`: the longest wait for
    the pool's write lock.
    """

    def __init__(
        self, url: str, *, clock: Callable[[], float] | None = None, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        database = PostgresDatabase(url, lock_seconds)
        super().__init__(database, clock or database.clock)
