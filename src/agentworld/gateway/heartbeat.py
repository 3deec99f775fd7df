"""What this worker says of itself in the pool, so that whoever paused the gateways knows when all have drained."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
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

    It has a thread of its own: a worker whose event loop is busy for long lives, and its calls are still at engines.
    """

    def __init__(self, pool: Pool, state: SharedState) -> None:
        self._pool = pool
        self._state = state
        self._said: tuple[int, int] | None = None
        self._said_at = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
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

    def _try(self) -> bool:
        """A pool that cannot be written now is tried again; its own errors say so elsewhere."""
        try:
            return self.beat()
        except Exception as error:  # The thread must not end while the worker lives.
            self._said = None
            log.warning("worker_not_reported", code=getattr(error, "code", type(error).__name__))
            return False

    async def end(self) -> None:
        """Say that this worker takes no more calls."""
        self._ended.set()
        try:
            await asyncio.to_thread(self._leave)
        except AgentWorldError as error:
            log.warning("worker_not_reported", code=error.code)

    def _leave(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._pool.forget_worker(self.worker)
