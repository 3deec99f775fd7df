"""A pool file that may be read but not written: another user's, or on a disk that is mounted for reading only."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from agentworld.errors import AgentWorldError, InvalidRequestError, PoolError
from agentworld.pool.schema import SCHEMA_VERSION
from agentworld.pool.sql.connections import Connection, Database, Reader, WriteSession
from agentworld.pool.sql.statements import EngineName
from agentworld.pool.sqlite.connection import SqliteConnection
from agentworld.pool.sqlite.database import as_binding_error, as_pool_error, schema_version, translated
from agentworld.syncing import sync

_State = tuple[int, int, int, int]


def is_read_only(path: Path) -> bool:
    """Whether there is a pool file that this process may not write to, or not to its folder, where its log must be."""
    path = path.resolve()
    if not path.exists():
        return False
    beside = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", ".lock")]
    as_who = os.access in os.supports_effective_ids
    needed = [path.parent, *(file for file in beside if file.exists())]
    return not all(os.access(file, os.W_OK, effective_ids=as_who) for file in needed)


class ReadOnlyDatabase(Database):
    """Reads take a connection each. Nothing is made beside the file: no lock file, no log.

    Without a log the file holds everything and nobody writes, so SQLite is told that it does not change; a read during
    which it did is a PoolError, since it may have seen half of a change.
    """

    engine: EngineName = "sqlite"

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path.absolute()}"
        self.path = path.resolve()
        self._log_path = self.path.with_name(self.path.name + "-wal")
        self._closed = False
        with self._connected() as connection:
            version = schema_version(connection, self.path)
        if version != SCHEMA_VERSION:
            raise PoolError(
                f"{self.path} has schema {version}, this version needs {SCHEMA_VERSION}, and it cannot be written to",
                hint="Open it once as a user who may write to the file and its folder, with the newest AgentWorld",
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[Reader]:
        """See Database."""
        if self._closed:
            raise PoolError("the pool is closed", hint="Open it again")
        with self._connected() as connection:
            connection.execute("BEGIN")
            yield SqliteConnection(connection)

    def open_writer(self) -> WriteSession:
        """See Database; each transaction is refused."""
        return _NoWriting(self.path)

    def as_error(self, error: Exception) -> AgentWorldError:
        """See Database."""
        return as_pool_error(error, self.path)

    def as_value_error(self, error: Exception) -> InvalidRequestError | None:
        """See Database."""
        return as_binding_error(error)

    def is_engine_fault(self, error: Exception) -> bool:
        """See Database."""
        return isinstance(error, (sqlite3.Error, OSError))

    def stop_reading(self) -> None:
        """See Database."""
        self._closed = True

    def close(self) -> None:
        """See Database."""

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with translated(self.path):
            unchanging = not self._log_path.exists()
            before = _state(self.path)
            query = "mode=ro&immutable=1" if unchanging else "mode=ro"
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?{query}", uri=True, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            try:
                with self._explained():
                    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                yield connection
            finally:
                connection.close()
            if unchanging and _state(self.path) != before:
                raise PoolError(f"the pool {self.path} was written to while it was read", hint="Read again")
            if not unchanging:
                with contextlib.suppress(FileNotFoundError):  # It is in the file by then.
                    sync(self._log_path)  # What was read may not be on the disk yet; see disk_marks.

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            code = error.sqlite_errorcode & 0xFF
            if self._log_path.exists() and code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise PoolError(
                    f"the pool {self.path} has a log ({self._log_path.name}) that only a writer can bring into it",
                    hint="Open it once as a user who may write to its folder, or copy both files to another one",
                ) from None
            raise


class _NoWriting(WriteSession):
    def __init__(self, path: Path) -> None:
        self._path = path

    def transaction(self, *, patient: bool = False) -> contextlib.AbstractContextManager[Connection]:
        """See WriteSession."""
        raise PoolError(
            f"the pool {self._path} is open for reading only, as its file or its folder cannot be written to",
            hint="Make both writable for this user, and open the pool again",
        )

    def commit(self, notify: bool = False) -> None:
        """See WriteSession; never reached, as no transaction begins."""

    def idle_seconds(self) -> float | None:
        """See WriteSession."""
        return None

    def maintain(self) -> None:
        """See WriteSession."""

    def close(self) -> None:
        """See WriteSession."""


def _state(path: Path) -> _State:
    there = os.stat(path)
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns
