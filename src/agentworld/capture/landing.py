"""Outcomes that another thread brings, such as the pool's after a commit, in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 4.0
"""Seconds; a worker that ends has a little more."""


class Landings:
    """Waits for futures of other threads. Those that are done together, as after a commit that they share, wake the
    loop once: each time costs both threads more than the rest. Used in one event loop.
    """

    def __init__(self) -> None:
        self._landed: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._woken = False

    async def of(self, future: Future[T]) -> T:
        """What the future gives, or raises. Whoever is cancelled while it waits has not stopped what was begun, so it
        learns of it, and goes on, where that comes within `PATIENCE`.
        """
        if future.done():
            return future.result()
        try:
            return await self._wait(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            waiting = self._wait(future)
            await asyncio.wait({waiting}, timeout=PATIENCE)
            if not waiting.done() or task is None:
                raise
            task.uncancel()
            return waiting.result()

    def _wait(self, future: Future[T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(partial(self._land, loop, waiting))
        return waiting

    def _land(self, loop: asyncio.AbstractEventLoop, waiting: asyncio.Future[Any], future: Future[Any]) -> None:
        self._landed.append((waiting, future))
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # The loop has ended, and with it who waited.
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False  # Before it looks: what lands from here on wakes the loop again.
        while self._landed:
            waiting, future = self._landed.popleft()
            if waiting.done():
                continue
            if (error := future.exception()) is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(future.result())
