"""How long the writing thread waits for more before it begins a transaction, where many write at once.

As commit_delay with commit_siblings in PostgreSQL. A transaction has a cost that those in it share. Calls of a gateway
come one after the other while the thread writes what came before, so that each transaction would hold only a few of
them, and the event loop, which makes the next ones, would wait for the thread meanwhile.

How many can be expected is not known. As many as were lately written together can come together again, so it waits for
these, now and then for a few more, and never longer than while somebody comes.
"""

from __future__ import annotations

from collections import deque

STEP_SECONDS = 0.003
"""After a step in which nobody came, nobody comes."""
MOST_STEPS = 10
# Whoever writes alone, or with few others, waits for nobody.
LEAST_OPERATIONS = 4
REMEMBERED = 16
"""Transactions; the largest of them is what can be expected."""
FIRST_LOOK, LAST_LOOK = 4, 64
"""Transactions between two that wait for more than that: doubled each time that no more came."""


class Lingering:
    """Told of each transaction, it says whether the next one waits another step."""

    def __init__(self) -> None:
        self._lately = deque([0], maxlen=REMEMBERED)
        self.expected = 0
        """As many waiting operations end the wait at once."""
        self._reached = False
        self._before = self._steps = 0
        self._between = self._left = FIRST_LOOK

    def begin(self, waiting: int) -> None:
        """So many operations wait for a transaction that could begin now."""
        self._before, self._steps, self._reached = waiting, 0, False

    def goes_on(self, waiting: int) -> bool:
        """Whether to wait one more step; `waiting`: how many operations wait by now."""
        quiet = self._steps > 0 and waiting == self._before
        self._before = waiting
        self._reached = waiting >= self.expected
        if self.expected < LEAST_OPERATIONS or self._reached or quiet or self._steps >= MOST_STEPS:
            return False
        self._steps += 1
        return True

    def wrote(self, operations: int) -> None:
        """So many were in the transaction."""
        most = max(self._lately)
        if self.expected > most:  # It waited for more than there ever were.
            self._between = FIRST_LOOK if operations > most else min(2 * self._between, LAST_LOOK)
            self._left = self._between
        self._lately.append(operations)
        self.expected = max(self._lately)
        self._left -= self._reached
        if self._left <= 0 and self.expected >= LEAST_OPERATIONS:
            self.expected += self.expected // 4 + 1
