"""How long one transaction of the writing thread may work: longer where nobody else wants the pool's lock."""

from __future__ import annotations

GROUP_SECONDS = 0.02
# Where this process waited longer than FAIR_WAIT for its turn there are many, and each takes less.
FAIR_WAIT = 0.04
LEAST_GROUP_SECONDS = 0.002
# Who was let in at once this often one after the other is alone, and takes more: records that are written together
# share statements. Whoever comes then waits that long once, and the next transaction is short again.
ALONE_SECONDS = 0.06
ALONE_AFTER = 8
_AT_ONCE = 0.002  # a wait that is none: asking for the lock takes as long, of a server too


class GroupTime:
    """Told of each wait for the lock, it says how many seconds of work the transaction takes on."""

    def __init__(self) -> None:
        self._let_in = 0

    def after_waiting(self, seconds: float) -> float:
        """For a transaction whose lock took `seconds` to be had."""
        self._let_in = self._let_in + 1 if seconds < _AT_ONCE else 0
        if self._let_in >= ALONE_AFTER:
            return ALONE_SECONDS
        return max(LEAST_GROUP_SECONDS, GROUP_SECONDS * min(1.0, FAIR_WAIT / max(seconds, 1e-6)))
