"""One connection of the HTTP client: a call at a time, its reply's head, and its body as it comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from agentworld.engines.broken import BrokenError
from agentworld.read_buffer import Reader
from agentworld.timing_wheel import Alarm

if TYPE_CHECKING:
    from agentworld.engines.http_client import HttpClient

MAX_HEAD_BYTES = 256 * 1024
HELD_BYTES = 1024 * 1024
"""So much of a reply is held for a reader that is slow; then the other side has to wait."""


class Answer:
    """A reply whose head has come. `ended`: the whole body has."""

    def __init__(self, link: Link, status: int, headers: dict[str, str]) -> None:
        self._link = link
        self.status = status
        self.headers = headers

    @property
    def ended(self) -> bool:
        """Whether the body has come to its end and was read."""
        return self._link.ended and not self._link.pieces

    async def read(self) -> bytes:
        """What is left of the body."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        while (piece := await self.piece()) is not None:
            yield piece

    async def piece(self) -> bytes | None:
        """All of the body that is there, once some is; None after its end."""
        link = self._link
        while not link.pieces:
            if link.ended:
                return None  # Whatever came behind it or after it is no fault of this reply.
            if link.fault is not None:
                raise link.fault
            await link.wait()
        return link.take()

    def hurry(self, seconds: float) -> None:
        """All that was asked for has come: TimeoutError where the body does not end within `seconds` from now."""
        self._link.limit(seconds)

    def close(self) -> None:
        """Be done with it: the connection is kept where the reply was read whole, else it is cut."""
        self._link.release(whole=self.ended)


class Link(Reader):
    """One connection, which carries one call at a time."""

    def __init__(self, client: HttpClient) -> None:
        super().__init__()
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._in_head = True
        self._left: int | None = 0
        """Bytes of the body, or of its present chunk, that are still to come; None: until the connection ends."""
        self._chunked = False
        self._at_line = True
        self._trailing = False
        self._reusable = False
        self._heard = False
        self._held = 0
        self._reading = True
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: Alarm | None = None
        self._head: tuple[int, dict[str, str]] | None = None
        self.pieces: deque[bytes] = deque()
        self.ended = True
        self.fault: Exception | None = None
        self.idle_since = 0.0

    @property
    def open(self) -> bool:
        """Whether a call can be sent."""
        return self._transport is not None and not self._transport.is_closing() and self.fault is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)  # Some loops have transports of classes of their own.

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._transport = None
        self._client.forget(self)
        if not self.ended and self._head is not None and self._left is None and exc is None:
            self.ended = True
            self._wake()
        elif not self.ended:
            self._fail(f"{type(exc).__name__}: {exc}" if exc is not None else "the other side closed it")

    def received(self, data: memoryview) -> None:
        """Something has come."""
        if self.ended:
            self._fail("data came that nobody asked for")
            return
        self._heard = True
        try:
            self._take_in(bytes(data))
        except ValueError as error:
            self._fail(str(error))
        self._wake()

    async def call(self, request: bytes, seconds: float) -> Answer:
        """Send a request, and return once the head of its reply has come. TimeoutError where the whole reply takes
        longer than `seconds`.
        """
        if self._transport is None:
            raise BrokenError("the other side closed it", begun=False)
        self._in_head, self.ended, self._buffer, self._heard = True, False, b"", False
        transport = self._transport
        self.limit(seconds)
        try:
            transport.write(request)
            while (head := self._head) is None:
                if self.fault is not None:
                    raise self.fault
                await self.wait()
            return Answer(self, *head)
        except BaseException:
            self.release(whole=False)
            raise

    def wait(self) -> asyncio.Future[None]:
        """Done when something has come or happened."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def limit(self, seconds: float) -> None:
        """The call ends with a TimeoutError where it is not over within `seconds` from now."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._client.wheel.after(seconds, self._time_out)

    def take(self) -> bytes:
        """All of the body that is there."""
        data = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        self._held = 0
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()
        return data

    def release(self, *, whole: bool) -> None:
        """The call is over."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if whole and self._reusable and self.open:
            self._head = None
            self._client.keep(self)
        else:
            self.ended = True
            self.abort()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _time_out(self) -> None:
        self.fault = self.fault or TimeoutError()
        self._wake()

    def _fail(self, message: str) -> None:
        if self.fault is None:
            self.fault = BrokenError(message, begun=self._heard)
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take_in(self, data: bytes) -> None:
        if self._in_head:
            data = self._buffer + data
            while self._in_head:
                end = data.find(b"\r\n\r\n")
                if end < 0:
                    if len(data) > MAX_HEAD_BYTES:
                        raise ValueError("the head of the reply is too long")
                    self._buffer = data
                    return
                self._read_head(data[:end])
                data, self._buffer = data[end + 4 :], b""
        if self._chunked:
            data = self._buffer + data if self._buffer else data
            self._buffer = b""
            self._unchunk(data)
        elif self._left is None:
            self._hold(data)
        else:
            if len(data) > self._left:
                self._reusable = False
                data = data[: self._left]
            self._left -= len(data)
            self._hold(data)
            self.ended = not self._left

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise ValueError(f"no HTTP: {first[:60]!r}")
        status = int(rest[:3])
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"no header: {line[:60]!r}")
            name, value = name.strip().lower(), value.strip()
            if name == "content-length" and headers.get(name, value) != value:
                raise ValueError("two lengths of one body")
            headers[name] = value
        if 100 <= status < 200:
            return
        self._in_head = False
        self._head = (status, headers)
        said = headers.get("connection", "").lower()
        self._reusable = "close" not in said and (version != "HTTP/1.0" or "keep-alive" in said)
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._at_line, self._trailing = True, False
        length = headers.get("content-length")
        if status in (204, 304):
            self._chunked, self._left = False, 0
        elif self._chunked:
            self._left = 0
        elif length is not None:
            if not length.isdecimal() or len(length) > 18:
                raise ValueError(f"no length: {length[:60]!r}")
            self._left = int(length)
        else:
            self._left, self._reusable = None, False
        self.ended = self._left == 0 and not self._chunked

    def _unchunk(self, data: bytes) -> None:
        at = 0
        left = self._left or 0
        while at < len(data):
            if not self._at_line:
                # `left` counts the line end behind the chunk too.
                piece = data[at : at + left]
                at += len(piece)
                left -= len(piece)
                kept = len(piece) - max(2 - left, 0)
                if kept > 0:
                    self._hold(piece[:kept])
                self._at_line = left == 0
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > MAX_HEAD_BYTES:
                    raise ValueError("the line before a chunk is too long")
                self._buffer = data[at:]
                break
            line = data[at:end]
            at = end + 2
            if self._trailing:
                if not line:
                    self.ended = True
                    if at < len(data):
                        self._reusable = False
                    break
                continue
            size = line.partition(b";")[0].strip()
            try:
                left = int(size, 16)
            except ValueError:
                left = -1
            if left < 0 or len(size) > 16:
                raise ValueError(f"no size of a chunk: {line[:60]!r}")
            if left:
                left += 2
                self._at_line = False
            else:
                self._trailing = True
        self._left = left

    def _hold(self, data: bytes) -> None:
        if data:
            self.pieces.append(data)
            self._held += len(data)
            if self._held > HELD_BYTES and self._reading and self._transport is not None:
                self._reading = False
                self._transport.pause_reading()
