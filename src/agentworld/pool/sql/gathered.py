"""What threads ask of the writing thread while it is busy, done as one operation: so it shares statements."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar

from agentworld.errors import AgentWorldError
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.writer import Writer

P = TypeVar("P")
T = TypeVar("T")
_Asked = tuple[P, "Future[T]"]


class Gathered(Generic[P, T]):
    """Requests of one kind, each from a thread that waits for its outcome.

    `work` gives the outcomes of the payloads in order, an error where one of them fails; what it raises is the outcome
    of all. Other writers may go first (see WriteSession).
    """

    def __init__(self, writer: Writer, work: Callable[[Transaction, Sequence[P]], Sequence[T | AgentWorldError]]):
        self._writer = writer
        self._work = work
        self._guard = threading.Lock()
        self._waiting: list[_Asked[P, T]] = []

    def ask(self, payload: P) -> T:
        """The payload's outcome, once it is durable."""
        future: Future[T] = Future()
        group: list[_Asked[P, T]] = []
        done: Future[Sequence[T | AgentWorldError]] | None = None
        with self._guard:
            if not self._waiting:
                # Those that come before the operation begins go along.
                done = self._writer.submit(partial(self._do, group), patient=True)
            self._waiting.append((payload, future))
        if done is not None:
            # Not under the guard: where the transaction has failed by now, this tells so at once.
            done.add_done_callback(partial(self._tell, group))
        return future.result()

    def _do(self, group: list[_Asked[P, T]], txn: Transaction) -> Sequence[T | AgentWorldError]:
        with self._guard:
            group[:], self._waiting = self._waiting, []
        return self._work(txn, [payload for payload, _ in group])

    def _tell(self, group: list[_Asked[P, T]], done: Future[Sequence[T | AgentWorldError]]) -> None:
        error = done.exception()
        if error is not None and not group:
            # The transaction failed before the operation began.
            with self._guard:
                group, self._waiting = self._waiting, []
        outcomes: Sequence[T | BaseException] = [error] * len(group) if error is not None else done.result()
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
