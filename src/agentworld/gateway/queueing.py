"""At most so many calls at once on an engine; the others wait in order, neither too many nor too long."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable

from agentworld.errors import AgentWorldError
from agentworld.gateway.clock import Clock

LONGEST_RETRY_AFTER = 60
"""Seconds; what a caller is told is a guess from how long calls took lately, and guesses that are long are bad ones."""
_SMOOTHING = 0.2


class QueueFullError(AgentWorldError):
    """Too many calls wait for the engines, or this one waited too long. `retry_after`: seconds."""

    code = "queue_full"
    status = 429

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, hint=f"Try again in {retry_after} s, or give the model more engines or concurrency")
        self.retry_after = retry_after


class Slots:
    """Places for calls on one engine. `limit` None: without end. Call from one event loop.

    Whoever comes while others wait waits behind them; a place that is given back goes to the one that waits longest.
    """

    def __init__(self, limit: int | None, queue: int, wait: float, clock: Clock) -> None:
        self._limit = limit
        self._queue = queue
        self._wait = wait
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._mean: float | None = None
        self.in_use = 0

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._waiting)

    @property
    def free(self) -> bool:
        """Whether a call that comes now gets a place at once."""
        return self._limit is None or (self.in_use < self._limit and not self._waiting)

    @property
    def full(self) -> bool:
        """Whether a call that comes now could not even wait."""
        return not self.free and len(self._waiting) >= self._queue

    @property
    def retry_after(self) -> int:
        """Seconds until those that wait now should have had their turn: a guess from how long calls took lately."""
        if self._limit is None or self._mean is None:
            return 1
        return min(max(math.ceil(self._mean * (len(self._waiting) + 1) / self._limit), 1), LONGEST_RETRY_AFTER)

    def acquire_now(self) -> float | None:
        """Take a place where one is free, and return the time at which it was had."""
        if not self.free:
            return None
        self.in_use += 1
        return self._clock.now()

    async def acquire(self, longest: float = math.inf, *, again: bool = False) -> float:
        """Take a place, and return the time at which it was had; QueueFullError where none can be had. `longest`:
        seconds that the call has left. `again`: it had a place before, so that the queue is never too full for it, and
        it waits as long as it has time.
        """
        if (since := self.acquire_now()) is not None:
            return since
        if self.full and not again:
            raise QueueFullError(f"{len(self._waiting)} calls wait for this engine already", self.retry_after)
        wait = longest if again and longest < math.inf else min(self._wait, longest)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        timer = asyncio.ensure_future(self._clock.sleep(wait))
        try:
            await asyncio.wait({turn, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                raise QueueFullError(f"no engine had time for this call within {wait:g} s", self.retry_after)
        except BaseException:
            if turn.done():
                self._pass_on()
            else:
                self._waiting.remove(turn)
            raise
        finally:
            timer.cancel()
        return self._clock.now()

    def release(self, since: float) -> None:
        """Give back the place that was had at `since`."""
        took = max(self._clock.now() - since, 0.0)
        self._mean = took if self._mean is None else self._mean + _SMOOTHING * (took - self._mean)
        self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self.in_use -= 1


class Place:
    """One call's place on an engine: taken, given back while the call waits for something else, and taken again, behind
    those that wait by then. `left`: seconds that the call has; `had`: it had a place on another engine.
    """

    def __init__(self, slots: Slots, left: Callable[[], float], *, had: bool = False) -> None:
        self._slots = slots
        self._left = left
        self._since: float | None = None
        self._had = had

    def take_now(self) -> bool:
        """Have a place, where one is free or the call has it; whether it has one."""
        if self._since is None:
            self._since = self._slots.acquire_now()
            self._had = self._had or self._since is not None
        return self._since is not None

    async def take(self) -> None:
        """Have a place; nothing where the call has it. QueueFullError as `Slots.acquire`."""
        if self._since is None:
            self._since = await self._slots.acquire(self._left(), again=self._had)
            self._had = True

    def give_back(self) -> None:
        """Let another call have it; again is no error."""
        if self._since is not None:
            since, self._since = self._since, None
            self._slots.release(since)
