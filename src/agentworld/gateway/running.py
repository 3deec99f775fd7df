"""Which trajectories have a call on its way, in any worker on the pool: those are not idle, whatever they said last.

Of its own calls a worker knows. Others are told by a mark in the pool, which is written only where somebody could
take the trajectory for idle: where it was silent for long before the call, or the call itself takes long.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from agentworld.errors import AgentWorldError
from agentworld.pool.protocol import Pool
from agentworld.records import digest

log = structlog.get_logger("agentworld.gateway")
LONGEST_PERIOD = 1200.0
"""Seconds; the pool forgets marks of calls after an hour."""
LOOK_BACK = 3
"""Periods; those of a call that goes on are marked one by one."""


class RunningCalls:
    """Those of one worker. `idle_seconds`: after so much silence a trajectory is closed, 0 for never."""

    def __init__(self, pool: Pool, idle_seconds: float, now: Callable[[], float] = time.time) -> None:
        self._pool = pool
        self._idle = idle_seconds
        self._period = min(idle_seconds / 4, LONGEST_PERIOD)
        self._now = now
        self._running: Counter[str] = Counter()

    async def during(self, trajectory_id: str, last_at: float, call: Coroutine[Any, Any, None]) -> None:
        """Do the work of a call of this trajectory. `last_at`: when the one before it was, seconds since the epoch."""
        running = self._running
        running[trajectory_id] += 1
        try:
            if self._idle > 0 and last_at < self._now() - self._idle / 2:
                await self._mark(trajectory_id)
            await call
        finally:
            call.close()  # It has not begun where the mark was broken off.
            running[trajectory_id] -= 1
            if not running[trajectory_id]:
                del running[trajectory_id]

    def known(self, trajectory_id: str) -> bool:
        """Whether a call of the trajectory runs, here or elsewhere. Call in a thread."""
        if trajectory_id in self._running:
            return True
        period = self._index()
        marks = [_mark_of(trajectory_id, each) for each in range(period + 1, period - LOOK_BACK, -1)]
        return bool(self._pool.find_marks(marks))

    async def run(self) -> None:
        """Mark what takes long, until cancelled; at once return where nothing is closed ever."""
        while self._idle > 0:
            before = list(self._running)
            await asyncio.sleep(self._period)
            for trajectory_id in before:
                if trajectory_id in self._running:
                    await self._mark(trajectory_id)

    def _index(self) -> int:
        return int(self._now() // self._period)

    async def _mark(self, trajectory_id: str) -> None:
        """A pool that cannot be written now is no reason to refuse a call; its own errors say so elsewhere."""
        try:
            await asyncio.to_thread(self._pool.mark_call, trajectory_id, _mark_of(trajectory_id, self._index()))
        except AgentWorldError as error:
            log.warning("call_not_announced", trajectory=trajectory_id, code=error.code)


def _mark_of(trajectory_id: str, period: int) -> str:
    return digest(b"running", trajectory_id.encode(), str(period).encode()).hex()
