"""What goes on beside the calls of one worker: a task that fails is told of, and begun again after a while."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from agentworld.gateway import metrics

log = structlog.get_logger("agentworld.gateway")
AGAIN_SECONDS = 5.0
"""Between a failure and the next beginning."""
LATELY_SECONDS = 300.0
"""So long a failure is told of in `/readyz`, as a task that was begun again need not say that it is well."""


class Background:
    """The tasks of one worker. Call from the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: dict[str, tuple[float, str]] = {}

    def begin(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Go on with this until `end`; it may also return, and is over then."""
        self._tasks.append(asyncio.create_task(self._keep(name, work), name=f"agentworld-{name}"))

    @property
    def running(self) -> bool:
        """Whether something was begun, and not ended."""
        return bool(self._tasks)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """For /readyz: which tasks failed lately, why, and how many seconds ago."""
        now = self._clock()
        return [
            {"task": name, "error": error, "seconds_ago": round(now - at, 1)}
            for name, (at, error) in self._failed.items()
            if now - at <= LATELY_SECONDS
        ]

    async def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
                return
            except Exception as error:
                # Places and the type alone: messages and locals can hold what users wrote.
                kind, places = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            self._failed[name] = (self._clock(), kind)
            metrics.BACKGROUND_FAILURES.labels(name).inc()
            log.error("background_failed", task=name, error=kind, places=places, again_in_seconds=AGAIN_SECONDS)
            await asyncio.sleep(AGAIN_SECONDS)

    async def end(self) -> None:
        """Break everything off, and return when it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
