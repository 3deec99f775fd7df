"""The writing connection: transactions under the file lock, and checkpoints."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from agentworld.errors import PoolError
from agentworld.pool.sql.connections import Connection, WriteSession
from agentworld.pool.sqlite.connection import SqliteConnection

if TYPE_CHECKING:
    from agentworld.pool.sqlite.database import SqliteDatabase

CHECKPOINT_SECONDS = 5.0
CHECKPOINT_BYTES = 16 * 1024 * 1024
# After a checkpoint SQLite writes the log from its beginning again and leaves its file as large as it was, so the size
# alone would ask for a checkpoint after each transaction.
PRESSED_SECONDS = 0.25
TRUNCATE_BYTES = 256 * 1024 * 1024

_log = logging.getLogger("agentworld.pool")


class SqliteWriteSession(WriteSession):
    """Closes the database's lock where it cannot begin."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._dirty_since: float | None = None
        self._changes: Mapping[str, int] = {}  # of counters, by the transaction that is open
        self._waits_for_disk = True  # with each commit, while it holds the lock
        self._waits_for = 0  # the number of the transaction that is committed and not known to be on the disk
        self._raw = database.connect()
        self._connection = SqliteConnection(self._raw)
        try:
            database.watch_log(self._raw)
        except BaseException:
            self._raw.close()
            database.lock.close()
            raise

    def transaction(self, *, patient: bool = False) -> _Open:
        """See WriteSession. One that is `patient` lets others have the lock while it waits for the disk."""
        return _Open(self, not patient)

    def run(self, work: Callable[[Connection], None], *, patient: bool = False) -> None:
        """See WriteSession."""
        asked = time.monotonic()

        def transact() -> None:
            self.waited = time.monotonic() - asked
            connection = self._begin(not patient)
            try:
                work(connection)
            except BaseException:
                self.end(failed=True)
                raise
            self.end(failed=False)

        self._database.run_exclusive(transact)

    def begin(self, waits_for_disk: bool) -> SqliteConnection:
        """Take the lock and begin a transaction, which `commit` or `end` ends."""
        asked = time.monotonic()
        self._database.enter()
        self.waited = time.monotonic() - asked
        return self._begin(waits_for_disk)

    def _begin(self, waits_for_disk: bool) -> SqliteConnection:
        try:
            if waits_for_disk != self._waits_for_disk:
                self._raw.execute(f"PRAGMA synchronous = {'FULL' if waits_for_disk else 'NORMAL'}")
                self._waits_for_disk = waits_for_disk
            self._connection.begin()
        except BaseException:
            self.end(failed=True)
            raise
        return self._connection

    def counted(self, changes: Mapping[str, int]) -> None:
        """See WriteSession."""
        self._changes = changes

    def commit(self, notify: bool = False) -> None:
        """See WriteSession."""
        marks = self._database.marks
        assert marks is not None
        if not self._changes:
            # Nothing was written, so SQLite does not ask the disk; what was found may be on its way there.
            self._raw.execute("COMMIT")
            self._waits_for = marks.begun
        elif self._waits_for_disk:
            self._raw.execute("COMMIT")
            marks.all_durable()
        else:
            self._waits_for = marks.begin()
            self._raw.execute("COMMIT")
            marks.committed()
        self._connection.counted(self._changes)

    def end(self, failed: bool) -> None:
        """Let go of the lock, once what has `failed` is rolled back."""
        self._changes = {}
        try:
            if failed:
                self._waits_for = 0
                self._connection.forget()
                if self._raw.in_transaction:
                    self._raw.execute("ROLLBACK")
        finally:
            self._database.leave()
        if not failed and self._dirty_since is None:
            self._dirty_since = time.monotonic()
        if self._waits_for:
            number, self._waits_for = self._waits_for, 0
            assert self._database.marks is not None
            self._database.marks.wait(number)

    def idle_seconds(self) -> float | None:
        """See WriteSession."""
        if self._dirty_since is None:
            return None
        return max(0.0, self._dirty_since + CHECKPOINT_SECONDS - time.monotonic())

    def maintain(self) -> None:
        """A checkpoint, where one is due."""
        if self._dirty_since is None:
            return
        waited = time.monotonic() - self._dirty_since
        if waited < PRESSED_SECONDS or (waited < CHECKPOINT_SECONDS and self._log_bytes() < CHECKPOINT_BYTES):
            return
        # Truncating waits for readers, so it is kept for a log that passive checkpoints could not reset.
        mode = "TRUNCATE" if self._log_bytes() >= TRUNCATE_BYTES else "PASSIVE"
        try:
            with self._database.exclusive():
                self._raw.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except (sqlite3.Error, PoolError) as error:
            # The log holds everything that was committed; the next checkpoint tries again.
            _log.warning("checkpoint of %s failed: %s", self._database.path, error)
        self._dirty_since = None

    def close(self) -> None:
        """A last checkpoint, then nothing more."""
        try:
            # The last connection of all checkpoints as it closes, so it closes under the lock.
            with self._database.exclusive():
                if self._dirty_since is not None:
                    self._raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self._raw.close()
        except (sqlite3.Error, PoolError) as error:
            # Whoever holds the lock has the file open, so this is not the last one; what is no pool is left alone.
            _log.warning("%s closes without a checkpoint: %s", self._database.path, error)
            self._raw.close()

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._database.log_text).st_size
        except FileNotFoundError:
            return 0


class _Open:
    """A transaction that is open inside."""

    __slots__ = ("_session", "_waits_for_disk")

    def __init__(self, session: SqliteWriteSession, waits_for_disk: bool) -> None:
        self._session = session
        self._waits_for_disk = waits_for_disk

    def __enter__(self) -> Connection:
        return self._session.begin(self._waits_for_disk)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session.end(failed=kind is not None)
