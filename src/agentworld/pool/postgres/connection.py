"""A PostgreSQL connection as the shared code reads from it, and its rows."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import psycopg
from psycopg import errors, pq
from psycopg.rows import RowMaker
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from agentworld.pool.exact_text import sought
from agentworld.pool.sql.connections import Asked, Row, SearchTimeoutError
from agentworld.pool.sql.statements import EngineName, Statement

_PREPARED = 500  # statements that a connection keeps prepared
_NOTHING: Mapping[str, Any] = {}
_get = tuple.__getitem__


class PostgresRow(tuple[Any, ...]):
    """One row of a result, by the name of a column or by position."""

    __slots__ = ()
    positions: ClassVar[dict[str, int]]

    def __getitem__(self, key: Any) -> Any:
        """The value of a column."""
        return _get(self, self.positions[key] if key.__class__ is str else key)

    def keys(self) -> Sequence[str]:
        """The names of the columns."""
        return list(self.positions)


@functools.lru_cache(maxsize=1024)
def _row_type(names: tuple[str, ...]) -> type[PostgresRow]:
    positions = {name: place for place, name in reversed(list(enumerate(names)))}
    return type("PostgresRow", (PostgresRow,), {"__slots__": (), "positions": dict(reversed(positions.items()))})


def _key(statement: Statement, parameters: Mapping[str, Any]) -> Any:
    return statement, frozenset(parameters.items())


def _row_factory(cursor: psycopg.Cursor[Any]) -> RowMaker[PostgresRow]:
    result = cursor.pgresult
    if result is None:
        return PostgresRow
    names = tuple((result.fname(place) or b"").decode() for place in range(result.nfields))
    return _row_type(names)


RawConnection = psycopg.Connection[PostgresRow]


def connect(parameters: Mapping[str, Any], prepare_threshold: int | None) -> RawConnection:
    """A connection that begins no transaction by itself."""
    raw = psycopg.connect(**parameters, autocommit=True, prepare_threshold=prepare_threshold, row_factory=_row_factory)
    raw.prepared_max = _PREPARED
    # One type for all whole numbers; by their size a statement would be prepared anew for each mixture of sizes.
    raw.adapters.register_dumper(int, Int8Dumper)
    raw.adapters.register_dumper(int, Int8BinaryDumper)
    return raw


class PostgresConnection:
    """A connection that reads, inside a transaction; see Reader of the shared code."""

    engine: EngineName = "postgres"

    def __init__(self, raw: RawConnection) -> None:
        self.raw = raw
        self.era = 0
        self._cursor = raw.cursor()
        self._cursors: list[psycopg.Cursor[PostgresRow]] = []  # for statements that are sent together
        self._foreseen: dict[Any, list[Row]] = {}
        self._deadline: float | None = None

    def execute(self, statement: Statement, parameters: Mapping[str, Any] = _NOTHING) -> list[Row]:
        """See Reader."""
        if (known := self._known(statement, parameters)) is not None:
            return known
        self._limit()
        return self._ask(statement, parameters)

    def _ask(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
        cursor = self._cursor
        cursor.execute(statement.text("postgres"), statement.bound("postgres", sought(parameters)), binary=True)
        if cursor.pgresult is None or not cursor.pgresult.nfields:
            return []
        return cast("list[Row]", cursor.fetchall())

    def _known(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Row] | None:
        """What was foreseen, once."""
        return self._foreseen.pop(_key(statement, parameters), None) if self._foreseen else None

    def foresee(self, asked: Sequence[Asked]) -> None:
        """See Reader."""
        if self._deadline is not None or len(asked) < 2:
            return
        while len(self._cursors) < len(asked):
            self._cursors.append(self.raw.cursor())
        with self._pipeline():
            self._send_waiting()
            for cursor, (statement, parameters) in zip(self._cursors, asked, strict=False):
                cursor.execute(statement.text("postgres"), statement.bound("postgres", sought(parameters)), binary=True)
        for cursor, (statement, parameters) in zip(self._cursors, asked, strict=False):
            self._foreseen[_key(statement, parameters)] = cast("list[Row]", cursor.fetchall())

    def _pipeline(self) -> contextlib.AbstractContextManager[object]:
        """Inside, statements are sent without waiting; at its end the server's answers to all are there."""
        return self.raw.pipeline()

    def _send_waiting(self) -> None:
        """Send what must come before the next statement."""

    def command(self, *texts: str) -> psycopg.Cursor[PostgresRow]:
        """Send statements without parameters together; the cursor is at the last result."""
        cursor = self._cursor
        cursor.execute("; ".join(texts), prepare=False)
        while cursor.nextset():
            pass
        return cursor

    def forget(self) -> None:
        """The transaction is gone."""
        self._foreseen.clear()

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """See Reader. After a search that ran out of time the transaction goes on as before it."""
        self.command("SAVEPOINT limited")
        self._deadline = time.monotonic() + seconds
        try:
            yield
        except errors.QueryCanceled:
            self.command("ROLLBACK TO SAVEPOINT limited", "RELEASE SAVEPOINT limited")
            raise SearchTimeoutError from None
        except BaseException:
            if self.raw.info.transaction_status == pq.TransactionStatus.INTRANS:
                self.command("ROLLBACK TO SAVEPOINT limited", "RELEASE SAVEPOINT limited")
            raise
        else:
            self.command("RELEASE SAVEPOINT limited", "SET LOCAL statement_timeout TO DEFAULT")
        finally:
            self._deadline = None

    def _limit(self) -> None:
        """Leave the next statement of a limited search what is left of its time."""
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise errors.QueryCanceled("no time is left for another statement")
            self.command(f"SET LOCAL statement_timeout = {max(1, int(left * 1000))}")
