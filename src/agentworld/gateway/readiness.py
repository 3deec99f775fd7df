"""Whether a worker is ready: whether its pool can be written, which is tried, as a full disk or a read-only one shows
nowhere else; and one look at everything for all who ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from agentworld.errors import PoolError
from agentworld.pool.protocol import Pool

T = TypeVar("T")
FRESH_SECONDS = 1.0
"""So long one try speaks for all who ask, so that asking costs pool and engines little."""
PATIENCE_SECONDS = 5.0


class PoolProbe:
    """Tries whether the pool can be written. Call from one event loop."""

    def __init__(self, pool: Pool, patience: float = PATIENCE_SECONDS) -> None:
        self._pool = pool
        self._patience = patience
        self._trying: asyncio.Task[None] | None = None
        self._tried_at = float("-inf")

    async def check(self) -> None:
        """The pool's error where it cannot be written, or does not answer in time."""
        trying = self._trying
        if trying is None or (trying.done() and time.monotonic() - self._tried_at >= FRESH_SECONDS):
            trying = self._trying = asyncio.create_task(self._try())
        done, _ = await asyncio.wait({trying}, timeout=self._patience)
        if not done:
            raise PoolError(f"the pool has not taken a write for {self._patience:g} s", hint="See who holds its lock")
        trying.result()

    async def _try(self) -> None:
        try:
            await asyncio.to_thread(self._pool.check_writable)
        finally:
            self._tried_at = time.monotonic()

    async def settle(self) -> None:
        """Return when no try is on its way."""
        if self._trying is not None:
            await asyncio.gather(self._trying, return_exceptions=True)  # Whoever asked has been told.


class Shared(Generic[T]):
    """One look at a time, whose result speaks for all who ask while it is fresh. Call from one event loop."""

    def __init__(self, look: Callable[[], Awaitable[T]], ticks: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._ticks = ticks
        self._looking: asyncio.Task[T] | None = None
        self._looked_at = float("-inf")

    async def get(self) -> T:
        """What was seen `FRESH_SECONDS` ago at most."""
        looking = self._looking
        if looking is None or (looking.done() and self._ticks() - self._looked_at >= FRESH_SECONDS):
            looking = self._looking = asyncio.create_task(self._once())
        return await asyncio.shield(looking)

    async def _once(self) -> T:
        try:
            return await self._look()
        finally:
            self._looked_at = self._ticks()

    async def settle(self) -> None:
        """Return when no look is on its way."""
        if self._looking is not None:
            await asyncio.gather(self._looking, return_exceptions=True)  # Whoever asked has been told.
