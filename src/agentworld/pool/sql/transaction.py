"""One write transaction: statements, savepoints, counters, primary keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from agentworld.pool import schema
from agentworld.pool.sql.connections import Connection, Counters, Row
from agentworld.pool.sql.statements import Statement, numbers_by_name, sql

T = TypeVar("T")
KEYS = "pk."
_TRANSACTIONS = "transactions"  # those that wrote, numbered as primary keys are
_NUMBER = KEYS + _TRANSACTIONS

_counters = schema.counters.c
# The upserts of this dialect compile for SQLite too.
_upsert = insert(schema.counters).from_select(["name", "value"], numbers_by_name("changes"))
_ADD = sql(
    _upsert.on_conflict_do_update(index_elements=["name"], set_={"value": _counters.value + _upsert.excluded.value})
)
_COUNTERS = sql(select(_counters.name, _counters.value))
STATEMENTS = (_ADD, _COUNTERS)  # of every transaction that writes


class Trace:
    """What is left of a transaction once it has ended: how much it wrote, in which era, and its number as it ended."""

    __slots__ = ("era", "number", "writes")

    def __init__(self, era: int) -> None:
        self.era = era
        self.writes = 0
        self.number: int | None = None


class Mark(NamedTuple):
    """The pool as a transaction had left it after so many of its writes; see Transaction.mark."""

    trace: Trace
    writes: int


class Transaction:
    """One write transaction, while no other process writes to the pool.

    `count` adds to a counter, `next_pk` gives the next primary key of a table, `on_rollback` undoes what lives outside
    the database. `now`: seconds since the epoch, the same for all that the transaction writes.
    """

    def __init__(self, connection: Connection, now: float) -> None:
        self.connection = connection
        self.now = now
        self._counts: dict[str, int] = {}
        self._trace = Trace(connection.era)
        self._undo: list[Callable[[], None]] = []
        self._before: Counters | None = connection.counters()

    def execute(self, statement: Statement, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """The rows of one statement; InvalidRequestError where the engine cannot hold a parameter."""
        self._trace.writes += statement.writes
        return self.connection.execute(statement, parameters or {})

    def one(self, statement: Statement, parameters: Mapping[str, Any] | None = None) -> Row | None:
        """The first row, or None."""
        rows = self.execute(statement, parameters)
        return rows[0] if rows else None

    def many(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run one statement for each of the rows."""
        if rows:
            self._trace.writes += 1
            self.connection.many(statement, rows)

    def many_in_order(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> None:
        """As `many`, with the values of each row in the order of `statement.names`."""
        if rows:
            self._trace.writes += 1
            self.connection.many_in_order(statement, rows)

    def count(self, name: str, change: int = 1) -> None:
        """Add to a counter."""
        self._counts[name] = self._counts.get(name, 0) + change

    def count_all(self, changes: Mapping[str, int]) -> None:
        """Add to several counters."""
        counts = self._counts
        for name, change in changes.items():
            counts[name] = counts.get(name, 0) + change

    def counter(self, name: str) -> int:
        """The counter's value as this transaction leaves it."""
        before = self._before if self._before is not None else self._read_counters()
        return before.get(name, 0) + self._counts.get(name, 0)

    def next_pk(self, table: str, count: int = 1) -> int:
        """The first of `count` primary keys that the table has never had, and never will but for this row."""
        name, counts = KEYS + table, self._counts
        before = self._before if self._before is not None else self._read_counters()
        used = counts.get(name, 0)
        counts[name] = used + count
        return before.get(name, 0) + used + 1

    def mark(self) -> Mark:
        """The pool as it is now, for `is_at` of this transaction or of the next ones."""
        return Mark(self._trace, self._trace.writes)

    def is_at(self, mark: Mark) -> bool:
        """Whether nobody has written anything since `mark`, whose transaction has not been undone."""
        before = mark.trace
        if before.writes != mark.writes or before.era != self._trace.era:
            return False
        return before is self._trace or self.counter(_NUMBER) == before.number

    def has_events(self) -> bool:
        """Whether events were written."""
        return bool(self._counts.get(KEYS + "events"))

    def on_rollback(self, action: Callable[[], None]) -> None:
        """Run `action` where what was written up to now is undone."""
        self._undo.append(action)

    def probe(self, operation: Callable[[Transaction], T]) -> T:
        """What `operation` gives, without what it writes."""
        counts, undo = dict(self._counts), len(self._undo)
        self.connection.savepoint("probe")
        result = operation(self)
        self.connection.undo("probe")
        self._counts = counts
        self._undo_from(undo)
        return result

    def run(self, operation: Callable[[Transaction], T]) -> T:
        """One operation in a savepoint; what it raises has undone it."""
        counts, undo = dict(self._counts), len(self._undo)
        self.connection.savepoint("operation")
        try:
            result = operation(self)
            self.connection.keep("operation")  # May send what waited, and so find its faults.
        except BaseException:
            self._counts = counts
            self._undo_from(undo)
            self.connection.undo("operation")
            raise
        return result

    def write_counters(self) -> Mapping[str, int]:
        """Add what was counted; the last statement before the commit. Returns by how much each counter changes."""
        if self._trace.writes:
            self.next_pk(_TRANSACTIONS)
            self._trace.number = self.counter(_NUMBER)
        changes = {name: change for name, change in self._counts.items() if change}
        if changes:
            self.connection.execute(_ADD, {"changes": msgspec.json.encode(changes).decode()})
        return changes

    def undo_all(self) -> None:
        """Run what `on_rollback` was given: everything is rolled back."""
        self._undo_from(0)

    def _read_counters(self) -> Counters:
        found: dict[str, int] = {row[0]: row[1] for row in self.execute(_COUNTERS)}
        self._before = found
        return found

    def _undo_from(self, first: int) -> None:
        for action in self._undo[first:]:
            action()
        del self._undo[first:]
