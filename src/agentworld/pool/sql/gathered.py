"""What threads ask of the writing thread, done as one operation: so it shares statements and the transaction.

Where the engine works in this process, transactions and the reading of batches take the interpreter's lock from one
another, and who comes alone costs a transaction of its own. There threads wait a moment for one another, as long as
others are to be expected or somebody reads; one that has no company waits for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from time import sleep
from typing import Generic, TypeVar

from agentworld.errors import AgentWorldError
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.writer import Writer

P = TypeVar("P")
T = TypeVar("T")
_Asked = tuple[P, "Future[T]"]
STEP_SECONDS = 0.001
MOST_STEPS = 10


class Company:
    """Threads that ask the same pool. `waits`: whether they wait for one another; `reading`: held by the one that reads
    a batch.
    """

    def __init__(self, waits: bool) -> None:
        self.waits = waits
        self.reading = threading.Lock()

    @property
    def reads(self) -> bool:
        """Whether somebody reads, and is to be waited for."""
        return self.waits and self.reading.locked()


class Gathered(Generic[P, T]):
    """Requests of one kind, each from a thread that waits for its outcome.

    `work` gives the outcomes of the payloads in order, an error where one of them fails; what it raises is the outcome
    of all. Other writers may go first (see WriteSession).
    """

    def __init__(
        self,
        writer: Writer,
        work: Callable[[Transaction, Sequence[P]], Sequence[T | AgentWorldError]],
        company: Company,
    ) -> None:
        self._writer = writer
        self._work = work
        self._company = company
        self._guard = threading.Lock()
        self._waiting: list[_Asked[P, T]] = []
        self._is_submitted = False  # what waits now, with all that comes before the operation begins
        self._expected = 1  # as many as came together lately

    def ask(self, payload: P) -> T:
        """The payload's outcome, once it is durable."""
        future: Future[T] = Future()
        with self._guard:
            self._waiting.append((payload, future))
            is_first = len(self._waiting) == 1
            tell = self._submit() if self._is_due() else None
        if tell is not None:
            tell()
        elif is_first:
            self._linger(future)
        return future.result()

    def _is_due(self) -> bool:
        """Whether to submit now what waits."""
        if self._is_submitted:
            return False
        return not self._company.waits or (len(self._waiting) >= self._expected and not self._company.reads)

    def _linger(self, future: Future[T]) -> None:
        """Submit the request that came first, once nobody else is to be expected; who completes the company may do so
        before.
        """
        known = 1
        try:
            for _ in range(MOST_STEPS):
                sleep(STEP_SECONDS)
                with self._guard:
                    count = len(self._waiting)
                    if self._is_submitted or not self._waits(future):
                        return
                if count == known and not self._company.reads:
                    return
                known = count
        finally:
            with self._guard:
                tell = self._submit() if self._waits(future) and not self._is_submitted else None
            if tell is not None:
                tell()

    def _waits(self, future: Future[T]) -> bool:
        """Whether the request is the first of those that wait still."""
        return bool(self._waiting) and self._waiting[0][1] is future

    def _submit(self) -> Callable[[], None]:
        """Submit what waits, under the guard; what is returned is to be called without it."""
        group: list[_Asked[P, T]] = []
        try:
            done = self._writer.submit(partial(self._do, group), patient=True)
        except BaseException as error:
            group, self._waiting = self._waiting, []
            refused: Future[Sequence[T | AgentWorldError]] = Future()
            refused.set_exception(error)
            return partial(self._tell, group, refused)
        self._is_submitted = True
        # Not under the guard: where the transaction has failed by now, this tells so at once.
        return partial(done.add_done_callback, partial(self._tell, group))

    def _do(self, group: list[_Asked[P, T]], txn: Transaction) -> Sequence[T | AgentWorldError]:
        with self._guard:
            group[:], self._waiting, self._is_submitted = self._waiting, [], False
            self._expected = max(len(group), self._expected - 1)
        return self._work(txn, [payload for payload, _ in group])

    def _tell(self, group: list[_Asked[P, T]], done: Future[Sequence[T | AgentWorldError]]) -> None:
        error = done.exception()
        if error is not None and not group:
            # The transaction failed before the operation began.
            with self._guard:
                group, self._waiting, self._is_submitted = self._waiting, [], False
        outcomes: Sequence[T | BaseException] = [error] * len(group) if error is not None else done.result()
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
