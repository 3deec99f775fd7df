"""Requests that read a whole channel or a whole version: once for all who ask the same, and few at a time.

A client or a proxy that has lost its patience asks again; what it asked for before goes on, and the second request
waits for that. Who waits holds no thread; the work has threads of its own, so that it takes none of other requests.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from agentworld.errors import BusyError, EndingError
from agentworld.pool.keeping.records import Progress

T = TypeVar("T")
MOST = 4
"""So many pieces of work at once: each holds a thread, and reads the pool."""
MOST_WAITING = 64
"""So many requests that wait for what others have asked for, each of which holds a connection."""


class LongWork:
    """The work of one server, for its event loop. Broken off when the server ends; nothing begun is left."""

    def __init__(self, closing: asyncio.Event, most: int = MOST, waiting: int = MOST_WAITING) -> None:
        self._closing = closing
        self._most = most
        self._room = waiting
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="agentworld-long-work")
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    async def run(self, key: Hashable, work: Callable[[Progress], T]) -> T:
        """What `work` returns, or raises; where the same `key` is being worked on, what that does. BusyError where too
        much is going on already, or too many wait for that. Whoever leaves, the work goes on.
        """
        there: asyncio.Future[T] | None = self._running.get(key)
        if there is None:
            return await asyncio.shield(self._begin(key, work))
        if not self._room:
            raise BusyError(
                "many wait for versions that are being made, compared or verified",
                hint="Send it again once that is done",
            )
        self._room -= 1
        try:
            return await asyncio.shield(there)
        finally:
            self._room += 1

    def _begin(self, key: Hashable, work: Callable[[Progress], T]) -> asyncio.Future[T]:
        if len(self._running) >= self._most:
            raise BusyError(
                f"{self._most} versions are being made, compared or verified already",
                hint="Send it again once one of them is done",
            )
        context = contextvars.copy_context()
        begun = asyncio.get_running_loop().run_in_executor(self._threads, context.run, work, self._look)

        def ended(done: asyncio.Future[T]) -> None:
            del self._running[key]
            if not done.cancelled():
                done.exception()  # Looked at here too, as everybody who asked for it may have left.

        self._running[key] = begun
        begun.add_done_callback(ended)
        return begun

    def _look(self, stage: str, done: int, total: int | None) -> None:
        if self._closing.is_set():
            raise EndingError("the server ends, so this was broken off", hint="Send it again")
