"""Policies and the pause, read from the pool at dispatch through a short cache; which calls are at an engine."""

from __future__ import annotations

import asyncio
import functools
import threading
import time

from agentworld.errors import PausedError
from agentworld.gateway.clock import Clock, MonotonicClock
from agentworld.gateway.queueing import Place
from agentworld.pool.protocol import GatewayState, Pool
from agentworld.records import Policy

CACHE_SECONDS = 0.25
POLL_SECONDS = 0.1


class SharedState:
    """The pool's gateway state, at most `CACHE_SECONDS` old. Calls wait up to `pause_wait` seconds for a resume.

    `in_flight`: calls that are at an engine, or whose reply is on its way into the pool. The event loop counts it, any
    thread may read it.
    """

    def __init__(self, pool: Pool, pause_wait: float, clock: Clock | None = None) -> None:
        self._pool = pool
        self._pause_wait = pause_wait
        self._clock = clock or MonotonicClock()
        self._state: GatewayState | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[GatewayState] | None = None
        self._lock = threading.Lock()
        """Over what is known of the pool, and over counting on the ground of it."""
        self.in_flight = 0

    async def read(self, max_age: float = CACHE_SECONDS) -> GatewayState:
        """The state; one read serves all who wait for it."""
        if (known := self.fresh(max_age)) is not None:
            return known
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    def fresh(self, max_age: float = CACHE_SECONDS) -> GatewayState | None:
        """The state, where it is known and not older."""
        return self._state if self._state is not None and time.monotonic() - self._read_at < max_age else None

    async def _read(self) -> GatewayState:
        try:
            begun = time.monotonic()
            found = await asyncio.to_thread(self._pool.gateway_state)
            self._keep(found, begun)
            return self._state or found
        finally:
            self._reading = None

    def look(self) -> GatewayState:
        """The state as the pool has it now. A pause is in force here from then on. Call in a thread."""
        begun = time.monotonic()
        found = self._pool.gateway_state()
        if found.paused:
            self._keep(found, begun)
        return found

    def _keep(self, found: GatewayState, begun: float) -> None:
        """What was read from the pool holds, unless what is known was read later."""
        with self._lock:
            if begun >= self._read_at:
                self._state, self._read_at = found, begun

    async def settle(self) -> None:
        """Return when no read is on its way."""
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    async def admit(self, wait: float | None = None) -> GatewayState:
        """The state once calls are taken; PausedError where the pause outlasts the wait, `pause_wait` by default."""
        state = self.fresh() or await self.read()
        if not state.paused:
            return state
        deadline = self._clock.now() + (self._pause_wait if wait is None else wait)
        while True:
            if self._clock.now() >= deadline:
                raise PausedError("the gateway is paused and takes no new calls", hint="Try again in a few seconds")
            await self._clock.sleep(POLL_SECONDS)
            state = await self.read(0.0)
            if not state.paused:
                return state

    def count(self) -> bool:
        """Count one more call in flight, unless a pause is known by now: a look at it may come from another thread."""
        with self._lock:
            if self._state is not None and self._state.paused:
                return False
            self.in_flight += 1
            return True

    def flight(self) -> Flight:
        """The place of one call among those in flight, not yet taken."""
        return Flight(self)

    @staticmethod
    def policy(state: GatewayState, model: str) -> Policy:
        """Which weights are said to speak for a model."""
        return state.policies.get(model) or _unsaid(model)


@functools.lru_cache(256)
def _unsaid(model: str) -> Policy:
    """The policy of a model of which nobody has said one: the same record each time, so that it is checked once."""
    return Policy(model=model)


class Flight:
    """Whether one call counts as in flight. It does from its dispatch to its commit, but not while it waits."""

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self._counted = False

    async def enter(self, model: str, wait: float | None = None, place: Place | None = None) -> Policy:
        """Count from here on, once calls are taken; the policy that is said to speak now. PausedError as `admit`.
        `place`: the call's at its engine, taken where it is not had, and left to others during a pause.

        None is counted once a pause is known, so whoever has seen a pause and then counts none in flight can be sure
        that none comes.
        """
        while True:
            if place is not None and not place.take_now():
                await place.take()  # Before the policy is read, as it may have to queue.
            state = self._state.fresh() or await self._state.read()
            if not state.paused and (self._counted or self._state.count()):
                self._counted = True
                return self._state.policy(state, model)
            if place is not None:
                place.give_back()
            await self._state.admit(wait)

    def leave(self) -> None:
        """Count no more; again is no error."""
        if self._counted:
            self._counted = False
            self._state.in_flight -= 1
