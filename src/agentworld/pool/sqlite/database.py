"""The file: opening it, bringing its schema up to date, connections, and SQLite's errors as ours."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from sqlalchemy.exc import DBAPIError

from agentworld.errors import AgentWorldError, InvalidRequestError, PoolError, PoolFullError
from agentworld.pool.exact_text import sought
from agentworld.pool.schema import SCHEMA_VERSION
from agentworld.pool.sql.connections import Database, Reader, Row, WriteSession
from agentworld.pool.sql.statements import EngineName, Statement
from agentworld.pool.sqlite.connection import SqliteConnection
from agentworld.pool.sqlite.disk_marks import DiskMarks
from agentworld.pool.sqlite.lock import LOCK_SECONDS, FileLock
from agentworld.pool.stray_logs import WRITE_AHEAD, refuse_stray_logs

BINDING_ERRORS = (
    OverflowError,
    UnicodeEncodeError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
)
_TRANSLATED = (sqlite3.Error, OSError, *BINDING_ERRORS)
# A step's row has about 1.5 KB; of SQLite's usual 4 KB pages a tenth would stay empty.
PAGE_BYTES = 8192
_IDLE_READERS = 8
LOOK_SECONDS = 0.05
"""So long a look-up may read of a file that is no longer at its path."""
_BUSY_MILLISECONDS = 10_000
_Identity = tuple[int, int] | None  # device and number of a file; None where there is none


class SqliteDatabase(Database):
    """One pool file. Reading connections are kept for reuse and used by one thread at a time.

    `lock_seconds`: how long a write waits for the file lock at most. The file and its log (`-wal`) must stay where they
    are: once another file or none is there, reads and writes are PoolErrors, since what they would touch is lost to
    everybody else.
    """

    engine: EngineName = "sqlite"

    def __init__(self, path: Path, lock_seconds: float = LOCK_SECONDS) -> None:
        self.url = f"sqlite:///{path.absolute()}"
        self.path = path.resolve()
        self.log_path = self.path.with_name(self.path.name + "-wal")
        self.log_text = str(self.log_path)
        self._text = str(self.path)
        self.lock = FileLock(self.path.with_name(self.path.name + ".lock"), lock_seconds)
        self._idle: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._closed = False
        self._look_again = 0.0
        self.marks: DiskMarks | None = None  # from the writer's first look at the log on
        self._marked = 0  # which of the files that the lock has opened they are in
        try:
            with self.lock, translated(self.path):
                self._prepare()
                self._file: _Identity = _identify(self._text)
                self._log: _Identity = None  # Not known before watch_log.
            self.lock.look = self.check_in_place
        except BaseException:
            self.lock.close()
            raise

    def connect(self, mode: Literal["rwc", "rw", "ro"] = "rw") -> sqlite3.Connection:
        """A connection in autocommit mode: transactions are begun by hand.

        Of the modes of SQLite's URIs only `rwc` makes a file that is not there.
        """
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            timeout=0,
        )
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -16000")
        # What is deleted is overwritten, as far as it has a page of its own; the rest goes with a purge.
        connection.execute("PRAGMA secure_delete = ON")
        return connection

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """The file lock, for writing to the file that is at the path; PoolError where that is not the opened one."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """As `exclusive` begins."""
        self.lock.acquire()  # It looks too, before it would make its file anew in a folder that was cleared.
        self._entered()

    def run_exclusive(self, work: Callable[[], None]) -> None:
        """As `enter`, then `work`, which calls `leave`; by another thread where the lock has to be waited for."""

        def entered() -> None:
            self._entered()
            work()

        self.lock.run(entered)

    def leave(self) -> None:
        """As `exclusive` ends."""
        self.lock.release()

    def _entered(self) -> None:
        """What is to be looked at once the lock is held; let go of where it raises."""
        try:
            self.check_in_place()
            if self._marked != self.lock.opened and self._log is not None:
                self._mark()
        except BaseException:
            self.lock.release()
            raise

    def _mark(self) -> None:
        with translated(self.path):
            self.marks = DiskMarks(self.lock.descriptor, self.log_text)
        self._marked = self.lock.opened

    def check_in_place(self) -> None:
        """PoolError where the path does not lead to the file that was opened."""
        try:
            is_there = _identify(self._text) == self._file
            has_log = self._log is None or _identify(self.log_text) == self._log
        except OSError as error:
            raise as_pool_error(error, self.path) from error
        if not (is_there and has_log):
            raise PoolError(
                f"the pool file {self.log_path if is_there else self.path} was removed or replaced while it was open",
                hint="Put it back, or restart the server to go on with what is there now",
            )

    def watch_log(self, connection: sqlite3.Connection) -> None:
        """From now on the log is looked for too: while `connection` is open, SQLite keeps the one that is there now."""
        with translated(self.path):
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # Opens the log.
            self._log = _identify(self.log_text)
        with self.exclusive():
            pass  # The marks begin.

    def reading(self) -> _Reading:
        """See Database."""
        return _Reading(self)

    def look(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
        """See Database. One statement is a transaction by itself, and the file is looked for only now and then."""
        now = time.monotonic()
        if now >= self._look_again:
            self._check_in_place()
            self._look_again = now + LOOK_SECONDS
        connection = self._idle_reader()
        text, held = statement.on_sqlite
        parameters = sought(parameters)
        try:
            if connection is None:
                connection = self.connect("ro")
            rows: list[Row] = connection.execute(text, {**held, **parameters} if held else parameters).fetchall()
            if self.marks is not None:
                self.marks.settle()
        except _TRANSLATED as error:
            if connection is not None:
                connection.close()
            raise as_pool_error(error, self.path) from error
        self._return(connection)
        return rows

    def _check_in_place(self) -> None:
        try:
            self.check_in_place()
        except PoolError:
            self._check_open()  # The last to close a pool takes the log away with it.
            raise

    def _idle_reader(self) -> sqlite3.Connection | None:
        with self._guard:
            self._check_open()
            return self._idle.pop() if self._idle else None

    def begin_reading(self) -> sqlite3.Connection:
        """A connection inside a read transaction, for `end_reading`."""
        self._check_in_place()
        connection = self._idle_reader()
        try:
            if connection is None:
                connection = self.connect("ro")
            connection.execute("BEGIN")
        except _TRANSLATED as error:
            if connection is not None:
                connection.close()
            raise as_pool_error(error, self.path) from error
        return connection

    def end_reading(self, connection: sqlite3.Connection, error: BaseException | None) -> None:
        """End the transaction, in which `error` was raised; PoolError in its place where it is the engine's."""
        try:
            if isinstance(error, sqlite3.Error):
                connection.close()
            else:
                # After the caller's own fault too, such as a record that is not there, the connection is sound.
                try:
                    connection.execute("COMMIT" if error is None else "ROLLBACK")
                    if self.marks is not None:
                        self.marks.settle()
                except sqlite3.Error:
                    connection.close()
                    raise
                self._return(connection)
        except _TRANSLATED as failed:
            raise as_pool_error(failed, self.path) from failed
        if isinstance(error, _TRANSLATED):
            raise as_pool_error(error, self.path) from error

    def _check_open(self) -> None:
        if self._closed:
            raise PoolError("the pool is closed", hint="Open it again")

    def open_writer(self) -> WriteSession:
        """See Database."""
        from agentworld.pool.sqlite.session import SqliteWriteSession

        return SqliteWriteSession(self)

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
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """See Database."""
        self.lock.close()

    def after_fork(self) -> None:
        """See Database."""
        self.lock.after_fork()

    def _return(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            if not self._closed and len(self._idle) < _IDLE_READERS:
                self._idle.append(connection)
                return
        # A connection that may only read makes no checkpoint as it closes, so it needs no lock.
        connection.close()

    def _prepare(self) -> None:
        if not self.path.exists() or not self.path.stat().st_size:
            refuse_stray_logs(self.path, (WRITE_AHEAD,))  # A rollback journal may be of this file's own beginning.
        connection = self.connect("rwc")
        try:
            version = schema_version(connection, self.path)
            if version != SCHEMA_VERSION:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # Of a new file; others keep theirs.
                connection.execute("PRAGMA journal_mode = WAL")
                from agentworld.pool.migrations import known_versions, upgrade

                if version is not None and version not in known_versions():
                    raise PoolError(
                        f"{self.path} has schema {version}, this version knows up to {SCHEMA_VERSION}",
                        hint="A newer AgentWorld wrote it: upgrade AgentWorld, or open another pool",
                    )
                try:
                    upgrade(self.path)
                except DBAPIError as error:
                    raise error.orig or error from None
        finally:
            connection.close()


class _Reading:
    """A read transaction, open inside."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def __enter__(self) -> Reader:
        self._connection = self._database.begin_reading()
        return SqliteConnection(self._connection)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._database.end_reading(self._connection, error)


def schema_version(connection: sqlite3.Connection, path: Path) -> str | None:
    """The pool's schema version, None in an empty file; PoolError where the database is no pool."""
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not names:
        return None
    if "alembic_version" not in names:
        raise PoolError(f"{path} is a SQLite database, but no pool", hint="Name another file; a new one is created")
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else None


def _identify(path: str) -> _Identity:
    """Which file is at the path."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return None
    return there.st_dev, there.st_ino


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's and the system's errors as ours."""
    try:
        yield
    except _TRANSLATED as error:
        raise as_pool_error(error, path) from error


def as_binding_error(error: Exception) -> InvalidRequestError | None:
    """The error of a caller whose value SQLite cannot hold, such as a number beyond 64 bits; None for any other."""
    if not isinstance(error, BINDING_ERRORS):
        return None
    # The driver raises these two for misuse of a connection too, which is no caller's fault.
    general = isinstance(error, (sqlite3.InterfaceError, sqlite3.ProgrammingError))
    if general and not str(error).startswith("Error binding"):
        return None
    if isinstance(error, UnicodeEncodeError):
        return InvalidRequestError(
            "text with a lone surrogate cannot be stored or searched", hint="Decode the text as UTF-8"
        )
    return InvalidRequestError(f"a value cannot be stored or searched: {error}", hint="Send a smaller or simpler value")


def as_pool_error(error: Exception, path: Path) -> AgentWorldError:
    """What a fault of the file, or of a value sent to it, means and what to do; errors of ours as they are."""
    if isinstance(error, AgentWorldError):
        return error
    if (ours := as_binding_error(error)) is not None:
        return ours
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno == 28):
        return PoolFullError(
            f"no space is left for the pool {path}; nothing was written", hint="Free space on its disk and send again"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return PoolError(f"{path} is no SQLite database", hint="Name another file; a new one is created")
    if code == sqlite3.SQLITE_CORRUPT:
        return PoolError(f"the pool {path} is damaged: {error}", hint="Restore it from a backup")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return PoolError(f"the pool {path} cannot be opened for writing: {error}", hint="Check the file's permissions")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return PoolError(f"another program holds the pool {path} locked", hint="Close tools that write to it directly")
    return PoolError(f"the pool {path} failed: {error}", hint="Check the disk and the file's permissions")
