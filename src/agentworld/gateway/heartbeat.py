"""What this worker says of itself in the pool, so that whoever paused the gateways knows when all have drained."""

from __future__ import annotations

import asyncio
import os
import socket
import time

import structlog

from agentworld.errors import AgentWorldError
from agentworld.gateway.state import SharedState
from agentworld.pool.draining import REPORT_SECONDS
from agentworld.pool.protocol import Pool
from agentworld.records import new_id

log = structlog.get_logger("agentworld.gateway")
LOOK_SECONDS, PAUSED_LOOK_SECONDS = 0.5, 0.1


class Heartbeat:
    """One worker's. It looks at the pause twice a second, and speaks every few seconds; during a pause at once when
    something changed.
    """

    def __init__(self, pool: Pool, state: SharedState) -> None:
        self._pool = pool
        self._state = state
        self._said: tuple[int, int] | None = None
        self._said_at = 0.0
        self.worker = f"{socket.gethostname()[:100]}:{os.getpid()}:{new_id('wrk')}"

    async def beat(self) -> bool:
        """Say what has to be said; whether the gateways are paused.

        The pause is read first: once it is known here no call goes to an engine, so the count after it only falls.
        """
        state = await self._state.look()
        word = (self._state.in_flight, state.pauses)
        due = time.monotonic() - self._said_at >= REPORT_SECONDS
        if due or self._said is None or (state.paused and word != self._said):
            self._said_at = time.monotonic()
            await asyncio.to_thread(self._pool.report_worker, self.worker, *word)
            self._said = word
        return state.paused

    async def run(self) -> None:
        """Go on until cancelled. A pool that cannot be written now is tried again; its own errors say so elsewhere."""
        while True:
            paused = False
            try:
                paused = await self.beat()
            except AgentWorldError as error:
                self._said = None
                log.warning("worker_not_reported", code=error.code)
            await asyncio.sleep(PAUSED_LOOK_SECONDS if paused else LOOK_SECONDS)

    async def end(self) -> None:
        """Say that this worker takes no more calls."""
        try:
            await asyncio.to_thread(self._pool.forget_worker, self.worker)
        except AgentWorldError as error:
            log.warning("worker_not_reported", code=error.code)
