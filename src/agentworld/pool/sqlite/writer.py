"""The one writing thread: it gathers what many threads submit into one transaction and one fsync.

An operation is a function of the open transaction. Each runs in a savepoint, so that one that raises leaves no trace
and harms no other; futures are done after the commit, never before.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy.dialects.sqlite import insert

from agentworld.errors import AgentWorldError, PoolError
from agentworld.pool import schema
from agentworld.pool.sqlite.database import BINDING_ERRORS, Database, as_binding_error, as_pool_error
from agentworld.pool.sqlite.statements import sql

T = TypeVar("T")
MAX_OPERATIONS = 256
MAX_PENDING = 20_000
CHECKPOINT_SECONDS = 5.0
CHECKPOINT_BYTES = 16 * 1024 * 1024
TRUNCATE_BYTES = 256 * 1024 * 1024

_log = logging.getLogger("agentworld.pool")
_upsert = insert(schema.counters)
_ADD = sql(
    _upsert.on_conflict_do_update(
        index_elements=["name"], set_={"value": schema.counters.c.value + _upsert.excluded.value}
    )
)


class Transaction:
    """One write transaction. `count` adds to a counter, `on_rollback` undoes what lives outside the file."""

    def __init__(self, connection: sqlite3.Connection, now: float) -> None:
        self.connection = connection
        self.now = now
        self._counts: dict[str, int] = {}
        self._undo: list[Callable[[], None]] = []

    def execute(self, statement: str, parameters: dict[str, Any] | tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Run one statement; InvalidRequestError where SQLite cannot hold a parameter."""
        try:
            return self.connection.execute(statement, parameters)
        except BINDING_ERRORS as error:
            if (ours := as_binding_error(error)) is None:
                raise
            raise ours from None

    def one(self, statement: str, parameters: dict[str, Any] | tuple[Any, ...] = ()) -> sqlite3.Row | None:
        """The first row, or None."""
        row: sqlite3.Row | None = self.execute(statement, parameters).fetchone()
        return row

    def count(self, name: str, change: int = 1) -> None:
        """Add to a counter."""
        self._counts[name] = self._counts.get(name, 0) + change

    def on_rollback(self, action: Callable[[], None]) -> None:
        """Run `action` where what was written up to now is undone."""
        self._undo.append(action)

    def probe(self, operation: Callable[[Transaction], T]) -> T:
        """What `operation` gives, without what it writes."""
        counts, undo = dict(self._counts), len(self._undo)
        self.connection.execute("SAVEPOINT probe")
        result = operation(self)
        self.connection.execute("ROLLBACK TO probe")
        self.connection.execute("RELEASE probe")
        self._counts = counts
        self._undo_from(undo)
        return result

    def run(self, operation: Callable[[Transaction], T]) -> T:
        """One operation in a savepoint; what it raises has undone it."""
        counts, undo = dict(self._counts), len(self._undo)
        self.connection.execute("SAVEPOINT operation")
        try:
            result = operation(self)
        except BaseException:
            self._counts = counts
            self._undo_from(undo)
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO operation")
                self.connection.execute("RELEASE operation")
            raise
        self.connection.execute("RELEASE operation")
        return result

    def commit(self) -> None:
        """Write the counters and commit."""
        self.connection.executemany(_ADD, [{"name": name, "value": n} for name, n in self._counts.items() if n])
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo everything."""
        self._undo_from(0)
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _undo_from(self, first: int) -> None:
        for action in self._undo[first:]:
            action()
        del self._undo[first:]


@dataclass(slots=True)
class _Pending(Generic[T]):
    operation: Callable[[Transaction], T]
    future: Future[T]
    outcome: T | None = None
    error: BaseException | None = None

    def finish(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.outcome)  # type: ignore[arg-type]  # Set wherever there is no error.


class Writer:
    """Owns the writing connection and its thread; closes the database's lock where it cannot begin."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._queue: queue.SimpleQueue[_Pending[Any] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._closed = False
        self._dirty_since: float | None = None
        self._connection = database.connect()
        try:
            database.watch_log(self._connection)
        except BaseException:
            self._connection.close()
            database.lock.close()
            raise
        self._thread = threading.Thread(target=self._run, name="agentworld-pool-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Callable[[Transaction], T]) -> Future[T]:
        """Run `operation` in the next transaction; the future is done when it is durable."""
        pending = _Pending(operation, Future[T]())
        # A started future cannot be cancelled: what is queued will be written.
        pending.future.set_running_or_notify_cancel()
        with self._guard:
            if self._closed:
                raise PoolError("the pool is closed", hint="Open it again")
            if self._queue.qsize() >= MAX_PENDING:
                raise PoolError(f"{MAX_PENDING} writes wait already", hint="The disk is too slow for this load; retry")
            self._queue.put(pending)
        return pending.future

    def close(self) -> None:
        """Write what is queued, then stop."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._gather()
            if batch:
                self._write(batch)
            if not ended and self._is_checkpoint_due():
                self._checkpoint(self._wal_bytes() >= TRUNCATE_BYTES)
        self._close()

    def _gather(self) -> tuple[list[_Pending[Any]], bool]:
        """What is queued now; waits for the first, or until a checkpoint is due."""
        batch: list[_Pending[Any]] = []
        wait = None
        if self._dirty_since is not None:
            wait = max(0.0, self._dirty_since + CHECKPOINT_SECONDS - time.monotonic())
        try:
            first = self._queue.get(timeout=wait)
            while first is not None:
                batch.append(first)
                if len(batch) == MAX_OPERATIONS:
                    return batch, False
                first = self._queue.get_nowait()
        except queue.Empty:
            return batch, False
        return batch, True

    def _write(self, batch: list[_Pending[Any]]) -> None:
        try:
            with self._database.exclusive():
                self._transact(batch)
            if self._dirty_since is None:
                self._dirty_since = time.monotonic()
        except BaseException as error:
            # Nothing of the transaction is kept, so everyone in it must hear.
            fault = as_pool_error(error, self._database.path) if isinstance(error, Exception) else error
            for pending in batch:
                pending.error = fault
        for pending in batch:
            pending.finish()

    def _transact(self, batch: list[_Pending[Any]]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        transaction = Transaction(connection, self._clock())
        try:
            for pending in batch:
                try:
                    pending.outcome = transaction.run(pending.operation)
                except (sqlite3.Error, OSError, *BINDING_ERRORS) as error:
                    if (ours := as_binding_error(error)) is None:
                        raise
                    pending.error = ours
                except Exception as error:
                    pending.error = error if isinstance(error, AgentWorldError) else _unexpected(error)
            transaction.commit()
        except BaseException:
            transaction.rollback()
            raise

    def _is_checkpoint_due(self) -> bool:
        if self._dirty_since is None:
            return False
        waited = time.monotonic() - self._dirty_since
        return waited >= CHECKPOINT_SECONDS or self._wal_bytes() >= CHECKPOINT_BYTES

    def _checkpoint(self, truncate: bool) -> None:
        # Truncating waits for readers, so it is kept for a log that passive checkpoints could not reset.
        mode = "TRUNCATE" if truncate else "PASSIVE"
        try:
            with self._database.exclusive():
                self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except (sqlite3.Error, PoolError) as error:
            # The log holds everything that was committed; the next checkpoint tries again.
            _log.warning("checkpoint of %s failed: %s", self._database.path, error)
        self._dirty_since = None

    def _close(self) -> None:
        try:
            # The last connection of all checkpoints as it closes, so it closes under the lock.
            with self._database.exclusive():
                if self._dirty_since is not None:
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self._connection.close()
        except (sqlite3.Error, PoolError) as error:
            # Whoever holds the lock has the file open, so this is not the last one; what is no pool is left alone.
            _log.warning("%s closes without a checkpoint: %s", self._database.path, error)
            self._connection.close()

    def _wal_bytes(self) -> int:
        try:
            return self._database.log_path.stat().st_size
        except FileNotFoundError:
            return 0


def _unexpected(error: Exception) -> Exception:
    _log.error("a pool operation failed", exc_info=error)
    return error
