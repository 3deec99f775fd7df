"""Work that a change of a policy begins and that takes as long as its channel is large, beside the requests for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import structlog

from agentworld.client.wire import LONGEST_WAIT
from agentworld.errors import EndingError
from agentworld.pool.keeping.records import Progress

logger = structlog.get_logger("agentworld.api")
LOOK_SECONDS = 0.25  # so late a request that waits sees that the server ends


class _ServerEndsError(Exception):
    """Breaks a sweep off between two transactions; leases, or the same request again, go on with it."""


class Sweep:
    """One change of a policy. `key`: what was asked for."""

    def __init__(self, key: Any, work: Callable[[Progress], Any], closing: asyncio.Event) -> None:
        self.key = key
        self.result: Any = None
        self.error: Exception | None = None
        self.ended = threading.Event()
        self._work = work
        self._closing = closing
        self._begun = threading.Event()
        threading.Thread(target=self._run, name="agentworld-curation", daemon=True).start()

    def wait(self, *, whole: bool) -> None:
        """Until the change is in force; `whole`: or everything is decided, for LONGEST_WAIT seconds at most. Raises
        what the change failed with.
        """
        if not whole:
            self._begun.wait()
        left = LONGEST_WAIT
        while whole and left > 0 and not self._closing.is_set() and not self.ended.wait(min(left, LOOK_SECONDS)):
            left -= LOOK_SECONDS
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self.result = self._work(self._tell)
        except _ServerEndsError:
            logger.info("curation broken off, as the server ends", channel=self.key[0])
        except Exception as error:
            self.error = error
            if self._begun.is_set():
                logger.warning("curation broken off", channel=self.key[0], error=str(error))
        finally:
            self.ended.set()
            self._begun.set()

    def _tell(self, stage: str, done: int, total: int | None) -> None:
        # What is in force is in force once some of it has been decided.
        self._begun.set()
        if self._closing.is_set():
            raise _ServerEndsError


class Sweeps:
    """Those that run on one server; a request for what is being done joins it."""

    def __init__(self, closing: asyncio.Event) -> None:
        self._closing = closing
        self._lock = threading.Lock()
        self._running: dict[str, Sweep] = {}

    def start(self, channel: str, wanted: Any, work: Callable[[Progress], Any]) -> Sweep:
        """Begin `work`, or join what runs already for the channel and wants the same."""
        if self._closing.is_set():
            raise EndingError("the server is ending", hint="Send this to another one, or once it is back")
        with self._lock:
            self._running = {name: one for name, one in self._running.items() if not one.ended.is_set()}
            running = self._running.get(channel)
            if running is None or running.key != (channel, wanted):
                running = self._running[channel] = Sweep((channel, wanted), work, self._closing)
            return running
