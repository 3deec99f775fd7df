"""The connection that writes: what has no rows to give waits, and goes to the server with what follows.

All processes wait for whoever holds the pool's lock, so a transaction takes as few round trips as it can. Statements
that only write, and savepoints, queue up. They are sent in one pipeline with the next statement that reads, as their
operation ends, so that a fault is told to the operation that has it, or with the commit. Many rows go at once, in one
statement of whole columns; what the server says of them is heard with the next answer, so it works on them meanwhile.
Statements whose need can be foreseen are asked together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import errors

from agentworld.pool.exact_text import sought
from agentworld.pool.postgres.columns import Column, column, is_alike, one_for_all, register
from agentworld.pool.postgres.connection import PostgresConnection, PostgresRow, RawConnection
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.statements import Insertion, Statement

ALTERED_ROWS = 8  # rows of one plain update from which on one statement for all of them is faster
INSERTED_ROWS = 2  # the same of a plain insertion
SENT_ROWS = 64  # rows of one insertion which go to the server at once, so that it works while we do
MOST_ALIKE = 8  # texts of one insertion, each with other columns of which all rows have the same value
MOST_ROWS, MOST_BYTES = 4096, 16 * 1024 * 1024  # of one statement
_NOTHING: Mapping[str, Any] = {}


class FlushFailedError(Exception):
    """A transaction is committed; what was sent along with the commit failed, as its cause says."""


class _Write(NamedTuple):
    text: str
    rows: Sequence[Mapping[str, Any] | Sequence[Column | None]]
    has_columns: bool = False  # instead of values, in its one row


class WritingConnection(PostgresConnection):
    """Statements inside a write transaction; see Connection of the shared code."""

    works_ahead = True

    def __init__(self, raw: RawConnection) -> None:
        super().__init__(raw)
        register(raw)
        self._writes = raw.cursor()
        self._of_columns: dict[str, psycopg.Cursor[PostgresRow]] = {}  # A cursor need not learn its statement again.
        self._queue: list[str | _Write] = []
        self._depth = 0
        self._ready = False  # A savepoint was set as the transaction began.
        self._trusts = False  # in what the operation writes
        self._is_unproven = False  # what waits is of an operation that has ended
        self._started: Mapping[str, int] | None = None
        self._ahead: contextlib.ExitStack | None = None  # ends the pipeline of what was sent before it had to be
        self._pipe: psycopg.Pipeline

    def begin(self, text: str) -> list[list[PostgresRow]]:
        """Begin a transaction; `text` also asks for what it needs, and ends with all counters.

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

    def forget(self) -> None:
        """The transaction is gone, with its savepoints and what was not sent."""
        super().forget()
        self._drop_ahead()
        self._queue, self._depth, self._ready, self._started = [], 0, False, None
        self._trusts = self._is_unproven = False

    def counters(self) -> Mapping[str, int] | None:
        """See Connection."""
        return self._started

    def execute(self, statement: Statement, parameters: Mapping[str, Any] = _NOTHING) -> list[Row]:
        """See Reader."""
        if statement.writes:
            self._foreseen.clear()
            if statement.only_writes:
                self._queue.append(_Write(statement.text("postgres"), [statement.bound("postgres", parameters)]))
                return []
        elif (known := self._known(statement, parameters)) is not None:
            return known
        self._limit()
        if self._ahead is None and not self._must_send():
            return self._ask(statement, parameters)
        cursor = self._cursor
        with self._pipeline():
            self._send_queue()
            cursor.execute(statement.text("postgres"), statement.bound("postgres", sought(parameters)), binary=True)
        # Not inside, as asking for rows would take a round trip of its own.
        return cast("list[Row]", cursor.fetchall())

    def many(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """See Connection."""
        self._foreseen.clear()
        insertion = statement.insertion if len(rows) >= INSERTED_ROWS else None
        if insertion is None:
            self._queue.append(_together(statement, rows) or _Write(statement.text("postgres"), rows))
            return
        self._insert(insertion, [[row[name] for row in rows] for name in statement.names])

    def many_in_order(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> None:
        """See Connection."""
        if len(rows) >= INSERTED_ROWS and (insertion := statement.insertion) is not None:
            self._foreseen.clear()
            self._insert(insertion, list(zip(*rows, strict=True)))
            return
        names = statement.names
        self.many(statement, [dict(zip(names, row, strict=True)) for row in rows])

    def _insert(self, insertion: Insertion, columns: Sequence[Sequence[Any]]) -> None:
        """Insert the rows of these columns, parents first, in as many statements as their bytes need."""
        count = len(columns[0])
        alike = _alike(insertion, columns) if count >= SENT_ROWS else 0
        made = [
            one_for_all(kind, values[0]) if alike >> place & 1 else column(kind, values)
            for place, (kind, values) in enumerate(zip(insertion.types, columns, strict=True))
        ]
        if count > 1 and (count > MOST_ROWS or sum(len(one.data) for one in made if one is not None) > MOST_BYTES):
            half = count // 2
            self._insert(insertion, [values[:half] for values in columns])
            self._insert(insertion, [values[half:] for values in columns])
            return
        self._queue.append(_Write(insertion.text(alike), [made], has_columns=True))
        if count >= SENT_ROWS:
            self._send_ahead()

    def command(self, *texts: str) -> psycopg.Cursor[PostgresRow]:
        """Send statements without parameters together, after what waits; the cursor is at the last result."""
        if not self._has_writes():
            waiting, self._queue = cast("list[str]", self._queue), []
            return super().command(*waiting, *texts)
        with self._pipeline():
            self._send_queue()
            for text in texts:
                self._cursor.execute(text, prepare=False)
        return self._cursor

    def commit(self, before: Sequence[str], after: str) -> str | None:
        """Commit, after what waits and then `before`, and send `after` along, which is a transaction of its own; the
        commit's status. FlushFailedError where `after` alone failed: the commit is done then.
        """
        cursor = self._cursor
        if not self._has_writes():
            waiting, self._queue = cast("list[str]", self._queue), []
            cursor.execute("; ".join([*waiting, *before, "COMMIT", after]), prepare=False)
            for _ in range(len(waiting) + len(before)):
                cursor.nextset()
            return cursor.statusmessage
        try:
            with self._pipeline():
                self._send_queue()
                for text in before:
                    self._writes.execute(text, prepare=False)
                cursor.execute("COMMIT", prepare=False)
                self._writes.execute(after, prepare=False)
        except psycopg.Error as error:
            if cursor.statusmessage == "COMMIT":
                raise FlushFailedError from error
            raise
        return cursor.statusmessage

    def savepoint(self, name: str) -> None:
        """See Connection."""
        if self._is_unproven or self._ahead is not None:
            self._flush()  # A fault in it must not look like one of the next operation.
        # Numbered, since one that waits to be released must not hide one of the same name.
        if self._ready:
            self._ready = False
        else:
            self._queue.append(f"SAVEPOINT s{self._depth}")
        self._depth += 1

    def undo(self, name: str) -> None:
        """See Connection."""
        self._foreseen.clear()
        self._drop_ahead()
        self._trusts = False
        self._depth -= 1
        begun = f"SAVEPOINT s{self._depth}"
        if begun in self._queue:
            last = len(self._queue) - 1 - self._queue[::-1].index(begun)
            del self._queue[last:]
        else:
            # What waits came after the savepoint, which was sent.
            self._queue = [f"ROLLBACK TO {begun}", f"RELEASE {begun}"]

    def keep(self, name: str) -> None:
        """See Connection. What the operation wrote is sent now, so that a fault is its own."""
        begun = f"SAVEPOINT s{self._depth - 1}"
        if self._queue and self._queue[-1] == begun:
            self._queue.pop()
        else:
            self._queue.append(f"RELEASE {begun}")
            if self._trusts and self._depth == 1:
                self._is_unproven = True
            else:
                self._flush()
        self._depth -= 1
        self._trusts = self._trusts and self._depth > 0

    def trust(self) -> None:
        """See Connection. It goes with the commit then, or before the next operation."""
        self._trusts = True

    def _send_waiting(self) -> None:
        self._send_queue()

    def _must_send(self) -> bool:
        # Releases alone can wait; the commit makes them needless.
        return any(isinstance(item, _Write) or not item.startswith("RELEASE") for item in self._queue)

    def _has_writes(self) -> bool:
        """Whether there is what only a pipeline can send, or one is open."""
        return self._ahead is not None or any(isinstance(item, _Write) for item in self._queue)

    def _flush(self) -> None:
        if self._has_writes():
            with self._pipeline():
                self._send_queue()
        elif self._must_send():
            self.command()

    @contextlib.contextmanager
    def _pipeline(self) -> Iterator[None]:
        """Inside, statements are sent without waiting; at its end the server's answers to all are there."""
        if self._ahead is None:
            with self.raw.pipeline():
                yield
            return
        yield
        ahead, self._ahead = self._ahead, None
        try:
            ahead.close()
        except errors.InFailedSqlTransaction as error:
            if isinstance(error.__context__, psycopg.Error):
                raise error.__context__ from None  # What failed first; psycopg tells what was heard last.
            raise

    def _send_ahead(self) -> None:
        """Send what waits, of which the server is heard later."""
        if self._ahead is None:
            self._ahead = contextlib.ExitStack()
            self._pipe = self._ahead.enter_context(self.raw.pipeline())
        self._send_queue()
        # Only after a sync does the server count how long it waits, so that it ends what a stopped process has begun.
        self.raw.pgconn.pipeline_sync()
        self._pipe.result_queue.append(None)

    def _drop_ahead(self) -> None:
        """End an open pipeline; what failed in it is undone next."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            with contextlib.suppress(psycopg.Error):
                ahead.close()

    def _send_queue(self) -> None:
        queue, self._queue = self._queue, []
        self._is_unproven = False
        for item in queue:
            if isinstance(item, str):
                self._writes.execute(item, prepare=False)
            elif item.has_columns:
                if item.text not in self._of_columns:
                    self._of_columns[item.text] = self.raw.cursor()
                self._of_columns[item.text].execute(item.text, item.rows[0])
            elif len(item.rows) == 1:
                self._writes.execute(item.text, item.rows[0])
            else:
                self._writes.executemany(item.text, item.rows)


def _alike(insertion: Insertion, columns: Sequence[Sequence[Any]]) -> int:
    """The bits of columns of which all rows have the same value, as far as a text of the insertion says so: each is
    planned by the server anew, so there are few.
    """
    found = sum(1 << place for place, kind in enumerate(insertion.types) if is_alike(kind, columns[place]))
    if found in insertion.known:
        return found
    if len(insertion.known) < MOST_ALIKE and found != (1 << len(columns)) - 1:  # A list says how many rows there are.
        return found
    said = tuple(insertion.known)  # Another pool of the process may add to them meanwhile.
    return max((known for known in said if not known & ~found), key=int.bit_count, default=0)


def _together(statement: Statement, rows: Sequence[Mapping[str, Any]]) -> _Write | None:
    """One statement that changes all of the rows, where the statement allows it and each row is another one."""
    alteration = statement.alteration if len(rows) >= ALTERED_ROWS else None
    if alteration is None or len({row["row"] for row in rows}) < len(rows):
        return None
    columns = {name: column(kind, [row[name] for row in rows]) for name, kind in alteration.types.items()}
    return _Write(alteration.text, [columns], has_columns=True)
