"""A stream on its way to a client that reads at its own pace, so that no engine has to wait for one that is slow."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from agentworld.capture.landing import PATIENCE
from agentworld.gateway.http import Http

BUFFER_BYTES = 32 * 1024 * 1024
"""So much of one reply waits for its reader. Whoever has more to say waits too."""
PIECE_BYTES = 64 * 1024
"""So much is sent at once, so that a reader that is slow but reads takes each piece in time."""


class Outbox:
    """What was said to one client and not sent yet. `left`: called once where the client takes nothing any more."""

    def __init__(self, http: Http, left: Callable[[], None]) -> None:
        self._http = http
        self._left = left
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._last = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        """Whether anything was said."""
        return self._sending is not None

    @property
    def full(self) -> bool:
        """Whether more than enough waits."""
        return self._bytes > BUFFER_BYTES

    @property
    def empty(self) -> bool:
        """Whether all that was said has been sent."""
        return not self._waiting

    def put(self, data: bytes) -> None:
        """Say something."""
        self._waiting.append(data)
        self._bytes += len(data)
        if self.full:
            self._room.clear()
        self._news.set()
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def room(self) -> None:
        """Return when there is room again. ClientGoneError where the client takes nothing any more."""
        while self.full:
            if self._sending is not None and self._sending.done():
                self._sending.result()
            await self._room.wait()

    async def end(self, data: bytes) -> None:
        """Say the last, and return when it is sent. ClientGoneError where the client takes nothing any more. Whoever is
        cancelled meanwhile goes on where it is sent within `PATIENCE`: what was said is on record.
        """
        self._last = True
        self.put(data)
        sending, task = self._sending, asyncio.current_task()
        assert sending is not None
        assert task is not None
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait({sending}, timeout=PATIENCE)
            if not sending.done() or sending.cancelled():
                raise
            task.uncancel()
            sending.result()

    async def close(self) -> None:
        """Send nothing more."""
        self._left = _nobody  # Whoever listened has this box, and would be a cycle with it.
        sending = self._sending
        if sending is not None and not sending.done():
            sending.cancel()
            await asyncio.wait({sending})
        if sending is not None and not sending.cancelled():
            sending.exception()  # Whoever had to know of it does.

    async def _send(self) -> None:
        try:
            if not self._http.started:
                await self._http.begin_events()
            while True:
                while not self._waiting:
                    self._news.clear()
                    await self._news.wait()
                data = self._piece()
                last = self._last and not self._waiting
                await self._http.chunk(data, last=last)
                if last:
                    return
        except Exception:
            self._left()
            raise
        finally:
            self._room.set()

    def _piece(self) -> bytes:
        """What is sent next: whole events, as what follows them may be an error."""
        data = self._waiting.popleft()
        if self._waiting and len(data) < PIECE_BYTES:
            parts, size = [data], len(data)
            while self._waiting and size + len(self._waiting[0]) <= PIECE_BYTES:
                parts.append(self._waiting.popleft())
                size += len(parts[-1])
            data = b"".join(parts)
        self._bytes -= len(data)
        if not self.full:
            self._room.set()
        return data


def _nobody() -> None:
    """Who is told that the client left once that concerns nobody any more."""
