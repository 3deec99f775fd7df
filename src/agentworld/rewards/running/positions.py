"""How far a run has come: work ends in any order, and what is saved is the place before which all has ended."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

P = TypeVar("P")


class Ticket:
    """Work that was begun at one place; ended as often as `more` was called, and once for itself."""

    def __init__(self) -> None:
        self._open = 1
        self._lock = threading.Lock()

    def more(self, count: int = 1) -> None:
        """So many more parts."""
        with self._lock:
            self._open += count

    def end(self) -> None:
        """One part has ended."""
        with self._lock:
            self._open -= 1

    @property
    def ended(self) -> bool:
        """Whether all has."""
        with self._lock:
            return self._open == 0


class Positions(Generic[P]):
    """Places in the order in which they were passed. For one thread; tickets are for any."""

    def __init__(self, position: P) -> None:
        self.last = position
        """The one that was passed last."""
        self._settled = position
        self._open: deque[tuple[P, Ticket]] = deque()

    def passed(self, position: P) -> Ticket:
        """All before `position` has been begun; end the ticket when that has ended."""
        ticket = Ticket()
        self.last = position
        self._open.append((position, ticket))
        return ticket

    def skipped(self, position: P) -> None:
        """There was nothing to do before `position`; places of that kind in a row take no room."""
        self.last = position
        if self._open and not self._open[-1][1].ended:
            self.passed(position).end()
        elif self._open:
            self._open[-1] = (position, self._open[-1][1])
        else:
            self._settled = position

    @property
    def settled(self) -> P:
        """The last place before which all has ended."""
        while self._open and self._open[0][1].ended:
            self._settled = self._open.popleft()[0]
        return self._settled
