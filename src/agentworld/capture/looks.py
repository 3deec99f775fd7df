"""Short looks at the pool on the way of a call: from the event loop itself where the pool is in this process.

A thread that looks costs five times as much as the look, and two hand-overs while the call waits. A look at another
server waits for the network, so there threads take it; so they do for a while after several that were slow, as on a
disk that is busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from agentworld.pool.protocol import Pool

T = TypeVar("T")
_IN_PROCESS = ("sqlite:", "memory:")
SLOW_SECONDS = 0.02
"""A look that takes longer holds up the other calls too much."""
SLOW_LOOKS = 4
"""So many after each other are the disk's; one can be any other program's that took the processor."""
SPARED_SECONDS = 5.0
"""So long threads look then."""


class Looks:
    """Looks of one event loop at a pool. `clock`: seconds, monotonic."""

    def __init__(self, pool: Pool, clock: Callable[[], float] = time.monotonic) -> None:
        self._here = pool.url.startswith(_IN_PROCESS)
        self._clock = clock
        self._slow = 0
        self._spared_until = float("-inf")

    @property
    def at_once(self) -> bool:
        """Whether a look now takes no thread, so that nothing else happens in the loop meanwhile."""
        return self._here and self._clock() >= self._spared_until

    def now(self, look: Callable[[str], T], name: str) -> T:
        """What the look finds, at once."""
        begun = self._clock()
        try:
            return look(name)
        finally:
            ended = self._clock()
            self._slow = self._slow + 1 if ended - begun > SLOW_SECONDS else 0
            if self._slow >= SLOW_LOOKS:
                self._slow, self._spared_until = 0, ended + SPARED_SECONDS

    async def of(self, look: Callable[[str], T], name: str) -> T:
        """What the look finds; `name`: the id that it is given."""
        return self.now(look, name) if self.at_once else await asyncio.to_thread(look, name)
