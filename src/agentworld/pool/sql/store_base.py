"""What every part of the SQL stores works with."""

from __future__ import annotations

from collections.abc import Callable

from agentworld.pool.base import Store
from agentworld.pool.events import Changes
from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.writer import Writer


class SqlStore(Store):
    """One opened database and its writing thread. `clock` gives seconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self.url = database.url
        self._database = database
        self._clock = clock
        self._changes = Changes()
        self._writer = Writer(database, clock, self._changes.tell)
        # Where the engine tells of other processes, a look now and then only covers a connection that was lost.
        self.poll_seconds = 5.0 if database.tells else 0.25

    def close(self) -> None:
        """See Pool."""
        self._database.stop_reading()
        self._writer.close()
        self._database.close()
        self._changes.tell()

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See Pool."""
        stops = [self._changes.watch(wake)]
        if (elsewhere := self._database.listen(wake)) is not None:
            stops.append(elsewhere)

        def stop() -> None:
            for each in stops:
                each()

        return stop
