"""What every part of the SQL stores works with."""

from __future__ import annotations

from collections.abc import Callable

from agentworld.pool.base import Store
from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.writer import Writer


class SqlStore(Store):
    """One opened database and its writing thread. `clock` gives seconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self.url = database.url
        self._database = database
        self._clock = clock
        self._writer = Writer(database, clock)

    def close(self) -> None:
        """See Pool."""
        self._database.stop_reading()
        self._writer.close()
        self._database.close()
