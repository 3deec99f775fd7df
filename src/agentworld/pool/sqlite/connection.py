"""A SQLite connection as the shared code uses it."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from agentworld.pool.exact_text import sought
from agentworld.pool.sql.connections import Asked, Row, SearchTimeoutError
from agentworld.pool.sql.statements import ROWS_TOGETHER, EngineName, Statement
from agentworld.pool.sqlite.counters import Counters

_STEPS_BETWEEN_LOOKS = 5_000  # of SQLite's machine, which take well under a millisecond
_NOTHING: Mapping[str, Any] = {}
# For every None and every bytes the driver asks what it should be adapted to, and looks long before it finds nothing.
# Told that both are what they are, it binds them in half the time: a twentieth of what a step costs.
sqlite3.register_adapter(type(None), cast("Callable[[None], None]", {}.get))
sqlite3.register_adapter(bytes, bytes)


class SqliteConnection:
    """Statements on one raw connection; see Connection and Reader of the shared code."""

    engine: EngineName = "sqlite"
    era = 0  # What was shown is durable.
    works_ahead = False

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw
        self._version: int | None = None  # of what others have written, as the connection saw it last
        self._counters = Counters(raw)  # as the latest transaction left them
        self._changes = 0  # that the connection had made when its transaction began
        self._at_start: list[bool] = []  # of each open savepoint, whether nothing was changed before it

    def begin(self) -> None:
        """Begin a transaction that writes."""
        self._at_start.clear()
        self._begin()
        version = self.raw.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version, self._counters = version, Counters(self.raw)

    def execute(self, statement: Statement, parameters: Mapping[str, Any] = _NOTHING) -> list[Row]:
        """See Reader."""
        text, held = statement.on_sqlite
        if parameters and not statement.only_writes:
            parameters = sought(parameters)
        return self.raw.execute(text, {**held, **parameters} if held else parameters).fetchall()

    def foresee(self, asked: Sequence[Asked]) -> None:
        """See Reader."""

    def trust(self) -> None:
        """See Connection."""

    def counters(self) -> Counters:
        """See Connection."""
        return self._counters

    def counted(self, changes: Mapping[str, int]) -> None:
        """What the transaction, which is committed, has added to the counters."""
        self._counters.add(changes)

    def forget(self) -> None:
        """Read the counters again, as a transaction has failed."""
        self._counters = Counters(self.raw)

    def many(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """See Connection."""
        text, values = statement.positional
        self.raw.executemany(text, [values(row) for row in rows])

    def many_in_order(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> None:
        """See Connection."""
        if len(rows) >= ROWS_TOGETHER and (text := statement.together) is not None:
            values = list(itertools.chain.from_iterable(rows))
            width = len(statement.names) * ROWS_TOGETHER
            whole = len(values) - len(values) % width
            self.raw.executemany(text, [values[at : at + width] for at in range(0, whole, width)])
            rows = rows[len(rows) - len(rows) % ROWS_TOGETHER :]
        if rows:
            self.raw.executemany(statement.positional[0], rows)

    def savepoint(self, name: str) -> None:
        """See Connection.

        One that nothing was changed before is the transaction's beginning. To SQLite it would be worth a copy of every
        page that is changed after it, in a file.
        """
        self._at_start.append(self.raw.total_changes == self._changes)
        if not self._at_start[-1]:
            self.raw.execute(f"SAVEPOINT {name}")

    def undo(self, name: str) -> None:
        """See Connection."""
        at_start = self._at_start.pop()
        if self.raw.in_transaction and at_start:
            self.raw.execute("ROLLBACK")
            self._begin()
        elif self.raw.in_transaction:
            self.raw.execute(f"ROLLBACK TO {name}")
            self.raw.execute(f"RELEASE {name}")

    def keep(self, name: str) -> None:
        """See Connection."""
        if not self._at_start[-1]:
            self.raw.execute(f"RELEASE {name}")
        self._at_start.pop()

    def _begin(self) -> None:
        self.raw.execute("BEGIN IMMEDIATE")
        self._changes = self.raw.total_changes

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """See Reader."""
        deadline = time.monotonic() + seconds
        self.raw.set_progress_handler(lambda: time.monotonic() >= deadline, _STEPS_BETWEEN_LOOKS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            raise SearchTimeoutError from None
        finally:
            self.raw.set_progress_handler(None, 0)
