"""Time as routing sees it, so that tests can hold and advance it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A clock that only goes forward; its zero means nothing."""

    def now(self) -> float:
        """Seconds."""

    async def sleep(self, seconds: float) -> None:
        """Return after so long."""


class MonotonicClock:
    """The machine's."""

    now = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """See Clock."""
        await asyncio.sleep(seconds)
