"""Policies and the pause, read from the pool at dispatch through a short cache."""

from __future__ import annotations

import asyncio
import time

from agentworld.errors import PausedError
from agentworld.pool.protocol import GatewayState, Pool
from agentworld.records import Policy

CACHE_SECONDS = 0.25
POLL_SECONDS = 0.1


class SharedState:
    """The pool's gateway state, at most `CACHE_SECONDS` old. Calls wait up to `pause_wait` seconds for a resume."""

    def __init__(self, pool: Pool, pause_wait: float) -> None:
        self._pool = pool
        self._pause_wait = pause_wait
        self._state: GatewayState | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[GatewayState] | None = None

    async def read(self, max_age: float = CACHE_SECONDS) -> GatewayState:
        """The state; one read serves all who wait for it."""
        if self._state is not None and time.monotonic() - self._read_at < max_age:
            return self._state
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> GatewayState:
        try:
            begun = time.monotonic()
            self._state = await asyncio.to_thread(self._pool.gateway_state)
            self._read_at = begun
            return self._state
        finally:
            self._reading = None

    async def admit(self) -> GatewayState:
        """The state once calls are taken; PausedError where the pause outlasts the wait."""
        state = await self.read()
        deadline = time.monotonic() + self._pause_wait
        while state.paused:
            if time.monotonic() >= deadline:
                raise PausedError("the gateway is paused and takes no new calls", hint="Try again in a few seconds")
            await asyncio.sleep(POLL_SECONDS)
            state = await self.read(0.0)
        return state

    @staticmethod
    def policy(state: GatewayState, model: str) -> Policy:
        """Which weights are said to speak for a model."""
        return state.policies.get(model) or Policy(model=model)
