"""What this worker says of itself in the pool, so that whoever paused the gateways knows when all have drained."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

import structlog

from agentworld.errors import AgentWorldError
from agentworld.gateway.state import SharedState
from agentworld.pool.draining import REPORT_SECONDS
from agentworld.pool.protocol import Pool
from agentworld.records import new_id

log = structlog.get_logger("agentworld.gateway")
LOOK_SECONDS, PAUSED_LOOK_SECONDS = 0.5, 0.1
END_SECONDS = 5.0
"""So long the end waits for the last word; the pool forgets workers that say nothing by itself."""


class Heartbeat:
    """One worker's. It looks at the pause twice a second, and speaks every few seconds; during a pause at once when
    something changed.

    It has a thread of its own: a worker whose event loop is busy for long lives, and its calls are still at engines.
    """

    def __init__(self, pool: Pool, state: SharedState) -> None:
        self._pool = pool
        self._state = state
        self._said: tuple[int, int] | None = None
        self._said_at = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: str | None = None
        """Why the worker could not report itself the last time; None where it did."""
        self._when_left: Callable[[], None] = lambda: None
        self.worker = f"{socket.gethostname()[:100]}:{os.getpid()}:{new_id('wrk')}"

    def beat(self) -> bool:
        """Say what has to be said; whether the gateways are paused. Call in a thread.

        The pause is read first: once it is known here no call goes to an engine, so the count after it only falls.
        """
        state = self._state.look()
        word = (self._state.in_flight, state.pauses)
        due = time.monotonic() - self._said_at >= REPORT_SECONDS
        if due or self._said is None or (state.paused and word != self._said):
            self._said_at = time.monotonic()
            self._pool.report_worker(self.worker, *word)
            self._said = word
        if due:
            self._pool.gateway_workers()  # Who is silent counts as dead once this process has seen it so for a while.
        return state.paused

    async def start(self) -> None:
        """Make this worker known, and go on until the end."""
        await asyncio.to_thread(self._try)
        self._thread = threading.Thread(target=self._run, name="agentworld-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        paused = False
        while not self._ended.wait(PAUSED_LOOK_SECONDS if paused else LOOK_SECONDS):
            paused = self._try()
        self._leave()

    def _try(self) -> bool:
        """A pool that cannot be written now is tried again; its own errors say so elsewhere."""
        try:
            paused = self.beat()
        except Exception as error:  # The thread must not end while the worker lives.
            self._said = None
            self.error = getattr(error, "code", type(error).__name__)
            log.warning("worker_not_reported", code=self.error)
            return False
        self.error = None
        return paused

    async def end(self) -> None:
        """Say that this worker takes no more calls; at most `END_SECONDS` long."""
        loop, left = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(left.set)

        self._when_left = tell
        self._ended.set()
        if self._thread is None:
            threading.Thread(target=self._leave, name="agentworld-heartbeat", daemon=True).start()
        try:
            async with asyncio.timeout(END_SECONDS):
                await left.wait()
        except TimeoutError:
            log.warning("worker_not_reported", code="timeout", seconds=END_SECONDS)

    def _leave(self) -> None:
        try:
            self._pool.forget_worker(self.worker)
        except AgentWorldError as error:
            log.warning("worker_not_reported", code=error.code)
        finally:
            self._when_left()
