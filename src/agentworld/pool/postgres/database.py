"""A pool's schema on a server: opening it, bringing it up to date, and the connections that read."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg import pq
from sqlalchemy.exc import DBAPIError

from agentworld.errors import AgentWorldError, InvalidRequestError, PoolError
from agentworld.pool.postgres.address import Address, read_address
from agentworld.pool.postgres.clock import ServerClock
from agentworld.pool.postgres.connection import PostgresConnection, connect
from agentworld.pool.postgres.errors import as_connection_error, as_pool_error, as_value_error, is_lost, may_pass
from agentworld.pool.postgres.flushing import Flushing
from agentworld.pool.postgres.listener import Listener
from agentworld.pool.schema import SCHEMA_VERSION
from agentworld.pool.sql.connections import Database, Reader, WriteSession
from agentworld.pool.sql.statements import EngineName

LOCK_SECONDS = 30.0
_OLDEST = 14  # version of the server
_IDLE_READERS = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
NOW = "CAST(extract(epoch FROM clock_timestamp()) AS FLOAT)"

_log = logging.getLogger("agentworld.pool")


class PostgresDatabase(Database):
    """One pool: a schema of a database. Reading connections are kept for reuse and used by one thread at a time.

    `lock_seconds`: how long a write waits for the pool's write lock at most. `clock`: the server's. `key`: what the
    advisory lock and the notifications of this pool are named after; other schemas of the database have others.
    `patient_key`: of the advisory lock for which those queue who let other writers go first.
    """

    engine: EngineName = "postgres"
    tells = True
    works_elsewhere = True

    def __init__(self, url: str, lock_seconds: float = LOCK_SECONDS) -> None:
        self.address: Address = read_address(url)
        self.url = self.address.url
        self.lock_seconds = lock_seconds
        self.clock = ServerClock()
        self._idle: list[PostgresConnection] = []
        self._guard = threading.Lock()
        self._closed = False
        connection = self.connect()
        try:
            with self.translated():
                self._prepare(connection)
        finally:
            connection.raw.close()
        self._listener = Listener(lambda: self.connect().raw, self.channel)

    def connect(self, seconds: float = 0.0) -> PostgresConnection:
        """A new connection, outside of any transaction; PoolError where there is none to be had.

        Where the server cannot be reached, as while it restarts, it is tried again for `seconds`.
        """
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
        while True:
            try:
                return PostgresConnection(connect(self.address.parameters, self.address.prepare_threshold))
            except psycopg.Error as error:
                ours = as_connection_error(error, self.url, self.address.database)
                if not may_pass(error) or time.monotonic() + pause > deadline:
                    raise ours from None
            _log.warning("%s", ours.message)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    @property
    def search_path(self) -> str:
        """What each transaction begins with, so that names mean this pool's tables; empty for the user's own path."""
        # For each transaction, as a pooler may hand every one of them another server process.
        return "" if self.address.schema is None else f'; SET LOCAL search_path TO "{self.address.schema}"'

    @contextlib.contextmanager
    def reading(self) -> Iterator[Reader]:
        """See Database."""
        connection, unsafe = self._begin()
        try:
            with self.translated():
                yield connection
                connection.command("COMMIT", *self.flushing.after_read(unsafe))
            connection.forget()
        except BaseException:
            self._roll_back(connection)
            raise
        self._return(connection)

    def open_writer(self) -> WriteSession:
        """See Database."""
        from agentworld.pool.postgres.session import PostgresWriteSession

        return PostgresWriteSession(self)

    def as_error(self, error: Exception) -> AgentWorldError:
        """See Database."""
        return as_pool_error(error, self.url)

    def as_value_error(self, error: Exception) -> InvalidRequestError | None:
        """See Database."""
        return as_value_error(error)

    def is_engine_fault(self, error: Exception) -> bool:
        """See Database."""
        return isinstance(error, (psycopg.Error, OSError))

    def stop_reading(self) -> None:
        """See Database."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.raw.close()

    def close(self) -> None:
        """See Database."""
        self._listener.close()

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See Database. `wake` is called for commits of this process too, from a thread of its own; it must not block.

        A pooler that hands out server processes by transaction passes no notifications on.
        """
        return self._listener.add(wake)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """PostgreSQL's errors as ours."""
        try:
            yield
        except (psycopg.Error, OSError, OverflowError, UnicodeEncodeError) as error:
            raise self.as_error(error) from error

    def _begin(self) -> tuple[PostgresConnection, str | None]:
        """A connection inside a transaction that sees one state, and up to where the log must be on the disk before
        that is shown. An idle connection that the server has left is replaced.
        """
        begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL jit = off{self.search_path}"
        begin = f"{begin}; {self.flushing.ask}, {NOW}"
        while True:
            with self._guard:
                if self._closed:
                    raise PoolError("the pool is closed", hint="Open it again")
                connection = self._idle.pop() if self._idle else None
            fresh = connection is None
            connection = connection or self.connect()
            try:
                [[unsafe, era, now]] = connection.command(begin).fetchall()
                if self.clock.is_due():
                    self.clock.observe(now)
                connection.era = self.flushing.number(era)
                return connection, unsafe
            except psycopg.Error as error:
                connection.raw.close()
                if fresh or not is_lost(error):
                    raise self.as_error(error) from error

    def _roll_back(self, connection: PostgresConnection) -> None:
        """After a fault, which may be the caller's own, such as a record that is not there."""
        connection.forget()
        try:
            if connection.raw.info.transaction_status != pq.TransactionStatus.IDLE:
                connection.command("ROLLBACK")
        except psycopg.Error:
            connection.raw.close()
        else:
            self._return(connection)

    def _return(self, connection: PostgresConnection) -> None:
        with self._guard:
            if not self._closed and len(self._idle) < _IDLE_READERS and not connection.raw.closed:
                self._idle.append(connection)
                return
        connection.raw.close()

    def _prepare(self, connection: PostgresConnection) -> None:
        raw = connection.raw
        if raw.info.server_version < _OLDEST * 10_000:
            raise PoolError(
                f"{self.url} is PostgreSQL {raw.info.server_version // 10_000}",
                hint=f"Use PostgreSQL {_OLDEST} or newer",
            )
        encoding = raw.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise PoolError(
                f"the database of {self.url} keeps texts as {encoding}",
                hint=f"Make one that holds any text: createdb -E UTF8 -T template0 {self.address.database}",
            )
        name = self.address.schema or raw.execute("SELECT current_schema()").fetchall()[0][0]
        if name is None:
            raise PoolError(
                f"no schema of the user's search_path is there in {self.url}", hint="Name one with ?schema=NAME"
            )
        self.schema: str = name
        digest = hashlib.blake2b(f"agentworld {name}".encode(), digest_size=8).digest()
        self.key = int.from_bytes(digest, "big", signed=True)
        self.patient_key = self.key ^ 1
        self.channel = f"agentworld_{digest.hex()}"
        durable = raw.execute("SHOW synchronous_commit").fetchall()[0][0] != "off"
        self.flushing = Flushing(raw.info.server_version // 10_000, durable)
        self.clock.observe(raw.execute(f"SELECT {NOW}").fetchall()[0][0])
        if self._is_old(raw):
            from agentworld.pool.migrations import upgrade_schema

            try:
                upgrade_schema(lambda: psycopg.connect(**self.address.parameters), name, self.key, self._is_old)
            except DBAPIError as error:
                raise self.as_error(error.orig if isinstance(error.orig, Exception) else error) from error

    def _is_old(self, raw: psycopg.Connection[Any]) -> bool:
        """Whether the schema is of an older version, or empty; PoolError where it is a newer one or no pool."""
        version = stored_version(raw, self.schema)
        if version == SCHEMA_VERSION:
            return False
        if version is None:
            return True
        from agentworld.pool.migrations import known_versions

        if version in known_versions():
            return True
        raise PoolError(
            f"the pool {self.url} has schema {version}, this version knows up to {SCHEMA_VERSION}",
            hint="A newer AgentWorld wrote it: upgrade AgentWorld, or open another pool",
        )


def existing_version(url: str) -> str | None:
    """The schema version of the pool at a URL, without a change to it; None where no pool is there yet."""
    address = read_address(url)
    try:
        with connect(address.parameters, address.prepare_threshold) as raw:
            name = address.schema or raw.execute("SELECT current_schema()").fetchall()[0][0]
            return None if name is None else stored_version(raw, name)
    except psycopg.OperationalError as error:
        raise as_connection_error(error, address.url, address.database) from None


_TABLES = """
    SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
"""


def stored_version(raw: psycopg.Connection[Any], schema: str) -> str | None:
    """The version of the schema's tables; None where there are none, PoolError where they are no pool's."""
    names = {row[0] for row in raw.execute(_TABLES, [schema]).fetchall()}  # But for those of extensions.
    if not names:
        return None
    if "alembic_version" not in names or "trajectories" not in names:
        raise PoolError(
            f"the schema {schema!r} holds tables, but no pool",
            hint="Use an empty database, or add ?schema=NAME to the URL to keep the pool in a schema of its own",
        )
    row = raw.execute(f'SELECT version_num FROM "{schema}".alembic_version').fetchone()
    return str(row[0]) if row else None
