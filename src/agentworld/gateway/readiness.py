"""Whether a pool can be written now: tried, as a full disk or a read-only one shows nowhere else."""

from __future__ import annotations

import asyncio
import time

from agentworld.errors import PoolError
from agentworld.pool.protocol import Pool

FRESH_SECONDS = 1.0
"""So long one try speaks for all who ask, so that asking costs the pool little."""
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
