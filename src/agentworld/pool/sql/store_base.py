"""What every part of the SQL stores works with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentworld.pool.base import Store
from agentworld.pool.events import Changes
from agentworld.pool.sql import forks
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
        forks.watch(self)

    def after_fork(self) -> None:
        """Let go of everything, in a process that was forked from the one that opened the pool."""
        self._database.after_fork()
        forks.keep(dict(vars(self)))
        vars(self).clear()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not vars(self):
                raise forks.inherited()
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def close(self) -> None:
        """See Pool."""
        if not vars(self):
            return  # It is the other process's to close.
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
