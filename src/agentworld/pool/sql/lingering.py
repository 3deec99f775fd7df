"""How long the writing thread waits for more before it begins a transaction, where many write at once.

As commit_delay with commit_siblings in PostgreSQL. A transaction has a cost that those in it share. Calls of a gateway
come one after the other while the thread writes what came before, so that each transaction would hold only a few of
them, and the event loop, which makes the next ones, would wait for the thread meanwhile.
"""

from __future__ import annotations

STEP_SECONDS = 0.001
MOST_STEPS = 10
# After so many steps in which nobody came, nobody comes.
QUIET_STEPS = 3
# Whoever writes alone, or with few others, waits for nobody.
LEAST_OPERATIONS = 4


class Lingering:
    """Told of each transaction, it says whether the next one waits another step."""

    def __init__(self) -> None:
        self._lately = 0
        self._waiting = 0
        self._steps = self._quiet = 0

    def begin(self, waiting: int) -> None:
        """So many operations wait for a transaction that could begin now."""
        self._waiting, self._steps, self._quiet = waiting, 0, 0

    def goes_on(self, waiting: int) -> bool:
        """Whether to wait one more step; `waiting`: how many operations wait by now. As many as were in the latest
        transaction are all that can be expected: who waits for its commit brings nothing new.
        """
        if self._steps:
            self._quiet = self._quiet + 1 if waiting == self._waiting else 0
            self._waiting = waiting
        expected = self._lately >= LEAST_OPERATIONS and waiting < self._lately
        if not expected or self._steps >= MOST_STEPS or self._quiet >= QUIET_STEPS:
            return False
        self._steps += 1
        return True

    def wrote(self, operations: int) -> None:
        """So many were in the transaction."""
        self._lately = operations
