"""The SQLite store: one file, many threads, several processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from agentworld.errors import PoolError, PoolFullError
from agentworld.pool.sql.store import SqlPool
from agentworld.pool.sqlite.database import SqliteDatabase
from agentworld.pool.sqlite.keeping import SqliteKeeping
from agentworld.pool.sqlite.lock import LOCK_SECONDS
from agentworld.pool.sqlite.readonly import ReadOnlyDatabase, is_read_only

ROOM = 1024 * 1024
"""Bytes that have to be free on the disk: a mark can still fit into a file where a step finds no room."""


class SqlitePool(SqliteKeeping, SqlPool):
    """A pool in one SQLite file. `clock`: seconds since the epoch; `lock_seconds`: the longest wait for the lock.

    A file that this process may not write to, or whose folder it may not write to, is opened for reading only.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        self.path = path.absolute()
        super().__init__(ReadOnlyDatabase(path) if is_read_only(path) else SqliteDatabase(path, lock_seconds), clock)

    def check_writable(self) -> None:
        """See Pool."""
        super().check_writable()
        try:
            free = shutil.disk_usage(self.path.parent).free
        except OSError as error:
            raise PoolError(f"the folder of the pool {self.path} cannot be read: {error.strerror}") from error
        if free < ROOM:
            raise PoolFullError(f"no space is left for the pool {self.path}", hint="Free space on its disk")
