"""The writing connection: transactions under an advisory lock of the pool, one writer at a time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq

from agentworld.errors import AgentWorldError, PoolError
from agentworld.pool.postgres.errors import first_line, is_lost
from agentworld.pool.postgres.writing import FlushFailedError, WritingConnection
from agentworld.pool.sql.connections import Connection, WriteSession

if TYPE_CHECKING:
    from agentworld.pool.postgres.database import PostgresDatabase

RECONNECT_SECONDS = 5.0  # that a transaction tries to reach a server that is gone
IDLE_SECONDS = 20  # after which the server ends a transaction whose process has stopped

_log = logging.getLogger("agentworld.pool")


class PostgresWriteSession(WriteSession):
    """Reconnects, with growing pauses, where the server left between two transactions."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._connection: WritingConnection | None = None
        settings = [
            f"lock_timeout = {max(1, int(database.lock_seconds * 1000))}",
            f"idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'",
        ]
        begin = (
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL jit = off"
            + "".join(f"; SET LOCAL {setting}" for setting in settings)
            + f"{database.search_path}; {database.flushing.begin}"
        )
        locked = (
            # Taken in the order of asking; the time is that after the wait, which the server measures: here it would
            # count how long other threads let this one wait for the answer.
            f"; SELECT pg_advisory_xact_lock({database.key}), "
            "CAST(extract(epoch FROM clock_timestamp()) AS FLOAT), "
            "CAST(extract(epoch FROM clock_timestamp() - statement_timestamp()) AS FLOAT), "
            f"{database.flushing.era}"
            "; SELECT name, value FROM counters"
        )
        self._begin = begin + locked
        self._begin_patiently = f"{begin}; SELECT pg_advisory_xact_lock({database.patient_key}){locked}"

    @contextlib.contextmanager
    def transaction(self, *, patient: bool = False) -> Iterator[Connection]:
        """See WriteSession."""
        connection = self._begun(self._begin_patiently if patient else self._begin)
        try:
            yield connection
        except BaseException:
            self._roll_back(connection)
            raise

    def commit(self, notify: bool = False) -> None:
        """See WriteSession."""
        connection = self._connection
        assert connection is not None
        told = [f"NOTIFY {self._database.channel}"] if notify else []
        try:
            status = connection.commit(told, self._database.flushing.after_write)
        except FlushFailedError as failed:
            self._flush_anew(connection.era, failed.__cause__)
            return
        except psycopg.Error as error:
            if is_lost(error):
                raise self._unsure(error) from error
            raise
        if status != "COMMIT":
            raise PoolError(f"{self._database.url} rolled the transaction back", hint="Send again")

    def _flush_anew(self, era: int, error: BaseException | None) -> None:
        """Wait for the disk once more, after a commit whose own wait failed; on a new connection where that is lost. In
        vain where the server has crashed since, which may have taken the commit back.
        """
        try:
            if isinstance(error, Exception) and is_lost(error):
                self._drop()
                try:
                    self._connection = WritingConnection(self._database.connect(RECONNECT_SECONDS).raw)
                except AgentWorldError as unreachable:  # Which is not all: the commit had gone there.
                    raise self._unsure(unreachable) from error
            assert self._connection is not None
            found = self._connection.command(f"SELECT {self._database.flushing.era}").fetchall()
            if self._database.flushing.number(found[0][0]) != era:
                raise self._unsure(error)
            self._connection.command(self._database.flushing.after_write)
        except psycopg.Error as again:
            self._drop()
            raise self._unsure(again) from error

    def _unsure(self, error: BaseException | None) -> PoolError:
        said = first_line(error) if isinstance(error, Exception) else str(error)
        return PoolError(
            f"the connection to the pool {self._database.url} was lost during the commit: what was sent may have been "
            f"written ({said})",
            hint="Send it again; ids make that safe",
        )

    def idle_seconds(self) -> float | None:
        """See WriteSession."""
        return None

    def maintain(self) -> None:
        """See WriteSession; the server sees to itself."""

    def close(self) -> None:
        """See WriteSession."""
        if self._connection is not None:
            self._connection.raw.close()
            self._connection = None

    def _begun(self, begin: str) -> WritingConnection:
        """The connection inside a transaction that holds the pool's lock."""
        while True:
            fresh = self._connection is None
            if self._connection is None:
                self._connection = WritingConnection(self._database.connect(RECONNECT_SECONDS).raw)
            connection = self._connection
            try:
                (_, server_time, self.waited, era), *_ = connection.begin(begin)[-2]
                connection.era = self._database.flushing.number(era)
                self._database.clock.observe(server_time)
                return connection
            except psycopg.Error as error:
                self._drop()
                if fresh or not is_lost(error):
                    raise self._database.as_error(error) from error
                _log.warning("the pool's connection is made anew: %s", first_line(error))

    def _roll_back(self, connection: WritingConnection) -> None:
        connection.forget()
        if connection.raw.info.transaction_status == pq.TransactionStatus.IDLE:
            return
        try:
            connection.command("ROLLBACK")
        except psycopg.Error:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.raw.close()
            self._connection = None
