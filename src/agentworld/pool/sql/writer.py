"""The one writing thread: it gathers what many threads submit into one transaction and one fsync.

An operation is a function of the open transaction. Each runs in a savepoint, so that one that raises leaves no trace
and harms no other; futures are done after the commit, never before. Operations of one kind that come together may be
written together: then they share statements.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from agentworld.errors import AgentWorldError, PoolError
from agentworld.pool.sql.connections import Connection, Database, WriteSession
from agentworld.pool.sql.group_time import GroupTime
from agentworld.pool.sql.lingering import STEP_SECONDS, Lingering
from agentworld.pool.sql.transaction import Transaction

T = TypeVar("T")
P = TypeVar("P")
MAX_OPERATIONS = 256
MAX_PENDING = 20_000
# Records that are written together: what fits into the transaction's time by what the latest ones took.
LEAST_TOGETHER, MOST_TOGETHER = 16, 512
_FIRST_SECONDS = 0.0002  # of a record, before any was written

_log = logging.getLogger("agentworld.pool")
# Writes the payloads of operations that came together; one outcome for each, in order, an exception where it failed.
Together = Callable[[Transaction, Sequence[P]], Sequence[T | AgentWorldError]]


@dataclass(slots=True)
class _Pending(Generic[T]):
    operation: Callable[[Transaction], T] | None
    future: Future[T]
    together: Together[Any, T] | None = None
    payload: Any = None
    weight: int = 1
    patient: bool = False
    outcome: T | None = None
    error: BaseException | None = None

    def finish(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.outcome)  # type: ignore[arg-type]  # Set wherever there is no error.

    def settle(self, outcome: T | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self.error = outcome
        else:
            self.outcome = outcome


@dataclass(slots=True)
class _Group:
    """What is written in one transaction: as many as are `done` of what is waiting. `has_events`: these are told of."""

    waiting: list[_Pending[Any]]
    done: int = 0
    has_events: bool = False


class Writer:
    """Owns the write session and its thread. `clock` gives seconds since the epoch; `tell` is called after each commit
    that holds events.
    """

    def __init__(self, database: Database, clock: Callable[[], float], tell: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._tell = tell
        self._queue: queue.SimpleQueue[_Pending[Any] | None] = queue.SimpleQueue()
        self._left: _Pending[Any] | None = None
        self._guard = threading.Lock()
        self._closed = False
        self._ended = False
        self._seconds_each = _FIRST_SECONDS
        self._group_time = GroupTime()
        self._lingering = Lingering()
        self._wanted = 0  # operations in the queue that end a wait for more
        self._enough = threading.Event()
        self._session: WriteSession = database.open_writer()
        self._thread = threading.Thread(target=self._run, name="agentworld-pool-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Callable[[Transaction], T], *, patient: bool = False) -> Future[T]:
        """Run `operation` in the next transaction; the future is done when it is durable. `patient`: writers that are
        not may go first (see WriteSession).
        """
        return self._put(_Pending(operation, Future[T](), patient=patient))

    def submit_together(self, together: Together[P, T], payload: P, weight: int = 1) -> Future[T]:
        """Write `payload` in the next transaction, with others that were submitted with the same function.

        `weight`: how many records it holds; about as many are written together as the transaction has time for.
        """
        return self._put(_Pending(None, Future[T](), together, payload, weight))

    def close(self) -> None:
        """Write what is queued, then stop."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _put(self, pending: _Pending[T]) -> Future[T]:
        # A started future cannot be cancelled: what is queued will be written.
        pending.future.set_running_or_notify_cancel()
        with self._guard:
            if self._closed:
                raise PoolError("the pool is closed", hint="Open it again")
            if self._queue.qsize() >= MAX_PENDING:
                raise PoolError(f"{MAX_PENDING} writes wait already", hint="The disk is too slow for this load; retry")
            self._queue.put(pending)
            if self._wanted and self._queue.qsize() >= self._wanted:
                self._wanted = 0
                self._enough.set()
        return pending.future

    def _run(self) -> None:
        waiting: list[_Pending[Any]] = []
        while not self._ended or waiting:
            left = bool(waiting)
            self._gather(waiting)
            if waiting:
                if not left:
                    self._linger(waiting)
                self._lingering.wrote(self._write(waiting))
            if not self._ended:
                self._session.maintain()
        self._session.close()

    def _gather(self, waiting: list[_Pending[Any]]) -> None:
        """Add what is queued now; without anything at hand waits for the first, or until maintenance is due."""
        if self._ended:
            return
        try:
            while len(waiting) < MAX_OPERATIONS:
                pending = self._queue.get_nowait() if waiting else self._queue.get(timeout=self._session.idle_seconds())
                if pending is None:
                    self._ended = True
                    return
                waiting.append(pending)
        except queue.Empty:
            pass

    def _linger(self, waiting: list[_Pending[Any]]) -> None:
        """Add what comes within a moment, where that is to be expected."""
        lingering = self._lingering
        lingering.begin(len(waiting))
        while not self._ended and lingering.goes_on(len(waiting)):
            self._await(lingering.expected - len(waiting))
            self._gather(waiting)

    def _await(self, wanted: int) -> None:
        """Wait a step, or until so many are in the queue: there is nothing else to do for anybody then."""
        with self._guard:
            if self._queue.qsize() >= wanted:
                return
            self._wanted = wanted
            self._enough.clear()
        self._enough.wait(STEP_SECONDS)
        self._wanted = 0

    def _write(self, waiting: list[_Pending[Any]]) -> int:
        """Write from the front of `waiting` in one transaction, and take out what was written or has failed; returns
        how many that are.
        """
        group = _Group(waiting)
        try:
            self._session.run(partial(self._fill, group), patient=all(each.patient for each in waiting))
        except BaseException as error:
            # Nothing of the transaction is kept, so everyone in it must hear.
            fault = self._database.as_error(error) if isinstance(error, Exception) else error
            group.done = group.done or len(waiting)
            for pending in waiting[: group.done]:
                pending.error = fault
        finished, waiting[:] = waiting[: group.done], waiting[group.done :]
        for pending in finished:
            pending.finish()
        if group.has_events:
            self._tell()
        return len(finished)

    def _fill(self, group: _Group, connection: Connection) -> None:
        """Write from the front of the group in the open transaction, and commit it."""
        self._gather(group.waiting)  # What came while it waited for the lock goes along.
        transaction = Transaction(connection, self._clock())
        try:
            group.done = self._transact(transaction, group.waiting)
            self._session.counted(transaction.write_counters())
            self._session.commit(transaction.has_events())
            group.has_events = transaction.has_events()
        except BaseException:
            transaction.undo_all()
            raise

    def _transact(self, transaction: Transaction, waiting: list[_Pending[Any]]) -> int:
        """Run operations until the group's time is up, so that other processes wait briefly; returns how many."""
        begin = time.perf_counter()
        seconds = self._group_time.after_waiting(self._session.waited)
        most = max(LEAST_TOGETHER, min(MOST_TOGETHER, int(seconds / self._seconds_each)))
        done = 0
        while done < len(waiting):
            first = waiting[done]
            if first.together is None:
                assert first.operation is not None
                first.settle(self._attempt(transaction, first.operation))
                done += 1
            else:
                until, weight = done + 1, first.weight
                while until < len(waiting) and waiting[until].together == first.together and weight < most:
                    weight += waiting[until].weight
                    until += 1
                started = time.perf_counter()
                self._run_together(transaction, waiting[done:until])
                took = (time.perf_counter() - started) / max(weight, 1)
                self._seconds_each += (max(took, 1e-6) - self._seconds_each) / 4
                done = until
            if time.perf_counter() - begin > seconds:
                break
        return done

    def _run_together(self, transaction: Transaction, pending: Sequence[_Pending[Any]]) -> None:
        together = pending[0].together
        assert together is not None
        outcomes = self._attempt(transaction, lambda txn: together(txn, [one.payload for one in pending]))
        if isinstance(outcomes, BaseException):
            if len(pending) == 1:
                pending[0].settle(outcomes)
                return
            # One at a time, so that the fault is told to the one that has it.
            for one in pending:
                self._run_together(transaction, [one])
            return
        for one, outcome in zip(pending, outcomes, strict=True):
            one.settle(outcome)

    def _attempt(self, transaction: Transaction, operation: Callable[[Transaction], T]) -> T | Exception:
        """The operation's outcome, or its own fault; faults of the engine end the transaction."""
        try:
            return transaction.run(operation)
        except AgentWorldError as error:
            return error
        except Exception as error:
            if (ours := self._database.as_value_error(error)) is not None:
                return ours
            if self._database.is_engine_fault(error):
                raise
            _log.error("a pool operation failed", exc_info=error)
            return error
