"""A PostgreSQL connection as the shared code uses it.

Savepoints are sent with the statement that follows them, so that an operation costs no round trip for them.
"""

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

from agentworld.pool.sql.connections import Row, SearchTimeoutError
from agentworld.pool.sql.statements import EngineName, Statement

COPY_ROWS = 4  # rows of one insertion from which on COPY is faster
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
    """Statements on one raw connection inside a transaction; see Connection and Reader of the shared code."""

    engine: EngineName = "postgres"

    def __init__(self, raw: RawConnection) -> None:
        self.raw = raw
        self._cursor = raw.cursor()
        self._pending: list[str] = []
        self._depth = 0
        self._ready = False  # A savepoint was set as the transaction began.
        self._started: Mapping[str, int] | None = None
        self._deadline: float | None = None

    def execute(self, statement: Statement, parameters: Mapping[str, Any] = _NOTHING) -> list[Row]:
        """See Reader."""
        text = statement.text("postgres")
        parameters = statement.bound("postgres", parameters)
        self._send_pending()
        cursor = self._cursor
        cursor.execute(text, parameters, binary=True)
        if cursor.pgresult is None or not cursor.pgresult.nfields:
            return []
        return cast("list[Row]", cursor.fetchall())

    def many(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """See Connection."""
        if len(rows) == 1:
            self.execute(statement, rows[0])
            return
        insertion = statement.insertion if len(rows) >= COPY_ROWS else None
        self._send_pending()
        if insertion is None:
            self._cursor.executemany(statement.text("postgres"), rows)
            return
        names = insertion.parameters
        with self._cursor.copy(insertion.copy) as copy:
            copy.set_types(insertion.types)
            for row in rows:
                copy.write_row([row[name] for name in names])

    def command(self, text: str) -> psycopg.Cursor[PostgresRow]:
        """Send what is not prepared, several statements where `;` parts them; the cursor is at the last result."""
        pending, self._pending = self._pending, []
        cursor = self._cursor
        cursor.execute("; ".join([*pending, text]), prepare=False)
        while cursor.nextset():
            pass
        return cursor

    def forget(self) -> None:
        """The transaction is gone with its savepoints."""
        self._pending, self._depth, self._ready, self._started = [], 0, False, None

    def counters(self) -> Mapping[str, int] | None:
        """See Connection."""
        return self._started

    def begin(self, text: str) -> list[list[PostgresRow]]:
        """Begin a transaction that writes; `text` also asks for what it needs, and ends with all counters.

        Returns the rows of each statement that has some. A first savepoint is set along with it.
        """
        self.forget()
        cursor = self._cursor
        cursor.execute(f"{text}; SAVEPOINT s0", prepare=False)
        found = []
        while True:
            if cursor.description is not None:
                found.append(cursor.fetchall())
            if not cursor.nextset():
                break
        self._started = dict(found[-1])
        self._ready = True
        return found

    def savepoint(self, name: str) -> None:
        """See Connection."""
        # Numbered, since one that waits to be released must not hide one of the same name.
        if self._ready:
            self._ready = False
        else:
            self._pending.append(f"SAVEPOINT s{self._depth}")
        self._depth += 1

    def undo(self, name: str) -> None:
        """See Connection."""
        self._depth -= 1
        begun = f"SAVEPOINT s{self._depth}"
        if begun in self._pending:
            last = len(self._pending) - 1 - self._pending[::-1].index(begun)
            del self._pending[last:]
        else:
            # What waits came after the savepoint, which was sent.
            self._pending = [f"ROLLBACK TO {begun}", f"RELEASE {begun}"]

    def keep(self, name: str) -> None:
        """See Connection."""
        self._depth -= 1
        begun = f"SAVEPOINT s{self._depth}"
        if self._pending and self._pending[-1] == begun:
            self._pending.pop()
        else:
            self._pending.append(f"RELEASE {begun}")

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """See Reader. After a search that ran out of time the transaction goes on as before it."""
        self.command("SAVEPOINT limited")
        self._deadline = time.monotonic() + seconds
        try:
            yield
        except errors.QueryCanceled:
            self._pending = []
            self.command("ROLLBACK TO SAVEPOINT limited; RELEASE SAVEPOINT limited")
            raise SearchTimeoutError from None
        except BaseException:
            if self.raw.info.transaction_status == pq.TransactionStatus.INTRANS:
                self.command("ROLLBACK TO SAVEPOINT limited; RELEASE SAVEPOINT limited")
            raise
        else:
            self.command("RELEASE SAVEPOINT limited; SET LOCAL statement_timeout TO DEFAULT")
        finally:
            self._deadline = None

    def _send_pending(self) -> None:
        """What must come before the next statement."""
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise errors.QueryCanceled("no time is left for another statement")
            self.command(f"SET LOCAL statement_timeout = {max(1, int(left * 1000))}")
        elif any(not waits.startswith("RELEASE") for waits in self._pending):
            # Releases alone can wait; the commit makes them needless.
            self.command(self._pending.pop())
