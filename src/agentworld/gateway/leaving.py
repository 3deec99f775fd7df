"""Noticing that a client left while its call runs.

The server is asked for the client's end only once a call has lasted a while: most that are answered from a cache, by a
small model or with an error are over by then, and asking costs a turn of the server's threads and of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from agentworld.timing_wheel import Alarm, TimingWheel

ASKED_AFTER = 0.1
"""Seconds; who left before is noticed then."""


class Leaving:
    """Calls `left` once the client has left, unless it was stopped before."""

    __slots__ = ("_alarm", "_asked", "_left", "_receive")

    def __init__(
        self,
        wheel: TimingWheel,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        left: Callable[[], None],
    ) -> None:
        self._receive = receive
        self._left: Callable[[], None] | None = left
        self._asked: asyncio.Future[MutableMapping[str, Any]] | None = None
        self._alarm: Alarm | None = wheel.after(ASKED_AFTER, self._ask)

    def stop(self) -> None:
        """Call nothing any more. Who listens, what was asked and the alarm would be cycles: nothing of it is kept."""
        self._left = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.remove_done_callback(self._heard)
            asked.cancel()

    def _ask(self) -> None:
        self._alarm = None
        # Some servers give a future, which needs no task to wait for it.
        self._asked = asyncio.ensure_future(self._receive())
        self._asked.add_done_callback(self._heard)

    def _heard(self, asked: asyncio.Future[MutableMapping[str, Any]]) -> None:
        self._asked = None
        if self._left is None:
            return
        # A server that fails to say what its client does has lost it. The end of the body may still come first.
        gone = asked.cancelled() or asked.exception() is not None or asked.result()["type"] == "http.disconnect"
        if not gone:
            self._ask()
            return
        left, self._left = self._left, None
        left()
