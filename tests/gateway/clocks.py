"""Clocks that tests hold in their hands."""

from __future__ import annotations

import asyncio
import heapq


class HeldClock:
    """Time goes on by `advance` alone; sleepers wake when theirs has come."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        await future

    @property
    def sleeping(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)

    def advance(self, seconds: float) -> None:
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)


class QuickClock:
    """A sleep takes no time but on this clock. `slept`: how long each was."""

    def __init__(self) -> None:
        self._now = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds
        self.slept.append(seconds)
        await asyncio.sleep(0)
