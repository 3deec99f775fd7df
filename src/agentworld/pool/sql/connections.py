"""What an engine gives the shared code: rows, reading connections, the one writing connection, and errors as ours."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agentworld.errors import AgentWorldError, InvalidRequestError
from agentworld.pool.sql.statements import EngineName, Statement

Asked = tuple[Statement, Mapping[str, Any]]  # a statement that reads, with its parameters


class Row(Protocol):
    """One row of a result, by the name of a column or by position."""

    def __getitem__(self, key: int | str, /) -> Any:
        """The value of a column."""

    def keys(self) -> Sequence[str]:
        """The names of the columns."""


class Reader(Protocol):
    """A connection that reads one state of the pool.

    `era`: grows with each crash of an engine that may have taken back what it showed; what was learnt of rows in an
    earlier one may not hold.
    """

    engine: EngineName
    era: int

    def execute(self, statement: Statement, parameters: Mapping[str, Any] = ...) -> list[Row]:
        """The rows of one statement; InvalidRequestError where the engine cannot hold a parameter."""

    def foresee(self, asked: Sequence[Asked]) -> None:
        """These will probably be executed soon: an engine on the network asks them in one round trip, and `execute`
        gives what is known as long as nothing was written since. It changes no outcome.
        """

    def limited(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Statements inside that together take longer raise SearchTimeoutError."""


class Counters(Protocol):
    """Values by name."""

    def get(self, name: str, default: int, /) -> int:
        """The value, `default` where there is none."""


class Connection(Reader, Protocol):
    """A connection that writes, inside a transaction that the WriteSession began.

    `works_ahead`: the engine works on what it was given while the caller goes on, so large operations give it parts.
    """

    works_ahead: bool

    def counters(self) -> Counters | None:
        """The counters as the transaction found them, where the engine has read them as it began, or reads each as it
        is asked for; None where not.
        """

    def many(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run one statement for each of the rows, in order, in as few round trips as the engine allows."""

    def many_in_order(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> None:
        """As `many`, with the values of each row in the order of `statement.names`."""

    def savepoint(self, name: str) -> None:
        """Begin what `undo` can undo."""

    def undo(self, name: str) -> None:
        """Undo all since the savepoint, and end it; nothing where the engine has rolled back everything already."""

    def keep(self, name: str) -> None:
        """End the savepoint."""

    def trust(self) -> None:
        """What the operation under way writes can fail by a fault of the engine alone, which ends the transaction; so
        it need not be known to have worked before the operation ends.
        """


class SearchTimeoutError(Exception):
    """A limited search took too long; the shared code makes it a QueryError."""


class WriteSession(abc.ABC):
    """The one writing connection of this process; used by the writing thread only, but for `close`.

    `waited`: seconds for which the latest transaction waited for the pool's lock.
    """

    waited: float = 0.0

    @abc.abstractmethod
    def transaction(self, *, patient: bool = False) -> contextlib.AbstractContextManager[Connection]:
        """The pool's write lock and an open transaction; what raises inside rolls back. `commit` ends it well.

        `patient`: others may go first. On a server those that are wait for one another before they ask for the lock, so
        that of them no more than one is ever before a writer that is not.
        """

    def run(self, work: Callable[[Connection], None], *, patient: bool = False) -> None:
        """Call `work` within a `transaction`, which it commits; perhaps by another thread, while this one waits."""
        with self.transaction(patient=patient) as connection:
            work(connection)

    def counted(self, changes: Mapping[str, int]) -> None:
        """What the transaction adds to the counters, which it has written; told before the commit."""
        return

    @abc.abstractmethod
    def commit(self, notify: bool = False) -> None:
        """Make what was written durable; `notify`: it holds events, which whoever listens wants to hear of."""

    @abc.abstractmethod
    def idle_seconds(self) -> float | None:
        """How long the writing thread may wait for work before it calls `maintain`; None for ever."""

    @abc.abstractmethod
    def maintain(self) -> None:
        """Work that is due between transactions, such as a checkpoint; never raises."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the connection."""


class Database(abc.ABC):
    """One opened pool on one engine, with its schema up to date."""

    engine: EngineName
    url: str  # without secrets
    tells = False  # whether `listen` hears of the commits of other processes
    works_elsewhere = False  # whether the engine's own work is done by another process than this one

    @abc.abstractmethod
    def reading(self) -> contextlib.AbstractContextManager[Reader]:
        """A connection inside one short read transaction, so that several statements see one state."""

    def look(self, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of one statement by itself, which every call of a gateway may ask for."""
        with self.reading() as connection:
            return connection.execute(statement, parameters)

    @abc.abstractmethod
    def open_writer(self) -> WriteSession:
        """The writing connection."""

    @abc.abstractmethod
    def as_error(self, error: Exception) -> AgentWorldError:
        """What a fault of the engine, or of a value sent to it, means and what to do; errors of ours as they are."""

    @abc.abstractmethod
    def as_value_error(self, error: Exception) -> InvalidRequestError | None:
        """The error of a caller whose value the engine cannot hold; None for any other."""

    @abc.abstractmethod
    def is_engine_fault(self, error: Exception) -> bool:
        """Whether the engine, the system or the connection failed, so that the transaction cannot go on."""

    @abc.abstractmethod
    def stop_reading(self) -> None:
        """Close what reads and is idle; connections in use close when they come back. Called before the writer ends."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the rest. Called after the writer has ended."""

    def after_fork(self) -> None:
        """Let go, in a forked process, of what it must not hold for the one that opened the pool; connections stay."""
        return

    def listen(self, wake: Callable[[], None]) -> Callable[[], None] | None:
        """Call `wake` after commits of other processes, until the returned function is called; None where the engine
        cannot tell, so that readers must look by themselves.
        """
        return None
