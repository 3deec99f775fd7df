"""One connection: requests are read by httptools, answered one after the other, and bounded in size and time."""

from __future__ import annotations

import asyncio
import inspect
import math
import traceback
from collections import deque
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote_to_bytes

import httptools
import msgspec
import structlog

from agentworld.errors import AgentWorldError, InvalidRequestError
from agentworld.http_server.exchange import Exchange
from agentworld.http_server.heads import framed_head
from agentworld.http_server.refusals import MAX_HEAD, MAX_HEADERS, failed, refusal, too_large
from agentworld.read_buffer import Reader

if TYPE_CHECKING:
    from agentworld.http_server.listener import Listener

log = structlog.get_logger("agentworld.http")
HELD = 256 * 1024
"""Bytes of a body that wait for the application before no more is read."""
WAITING = 16
"""Requests that were sent ahead on one connection; what comes after them is not read, and the connection ends."""
HEAD_SECONDS = 20.0
"""Time in which a head has to come, from its first byte, or from the beginning of the connection."""
IDLE_SECONDS = 120.0
"""Time that a connection may be without a request."""
LINGER_SECONDS = 5.0
"""Time in which a client that still sends a body may read the answer that refused it."""
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_UNKNOWN = {"method": "GET", "http_version": "1.1"}  # what a request counts as that could not be read


class Connection(Reader):
    """What one client sends and gets. `deadline`: when `expire` is to be called, by the event loop's clock."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener
        self._loop = listener.loop
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._ends: dict[str, Any] = {}
        self.deadline = math.inf
        self._in_head = False
        self._begun = False  # whether a head began in what came last
        self._came = 0  # bytes of that
        self._head_size = 0  # bytes that came since the piece in which the head began
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._current: Exchange | None = None  # the one that is answered
        self._filling: Exchange | None = None  # the one whose body comes
        self._waiting: deque[Exchange] = deque()
        self._task: asyncio.Task[None] | None = None
        self._last = False  # nothing further is served
        self._refusal = b""  # the answer to what came behind requests and is none
        self._deaf = False  # what comes is dropped
        self._reading = True
        self.drained: asyncio.Future[None] | None = None
        """There while the client takes less than is sent."""
        self._unsent = 0
        self._sleeping = 0  # bytes that came since the piece with which the body last grew

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = cast(asyncio.Transport, transport)  # Some loops have transports of classes of their own.
        self._ends = {
            "client": _address(transport.get_extra_info("peername")),
            "server": _address(transport.get_extra_info("sockname")),
        }
        self._listener.connections.add(self)
        self.deadline = self._loop.time() + HEAD_SECONDS
        if self._listener.ending:  # It was taken just before.
            self._close()

    def eof_received(self) -> None:
        """The client sends nothing more, and counts as gone; what was sent before may still go out to it. One that
        only ends its side looks like one that has left, whose call would go on at the engine's cost.
        """
        self._leave()
        self._unsent = self._transport.get_write_buffer_size()
        self.deadline = self._loop.time() + self._listener.stall_seconds

    def connection_lost(self, error: Exception | None) -> None:
        """The client has left, or the connection was ended."""
        self._listener.gone(self)
        self._leave()
        self.resume_writing()
        self.deadline = math.inf
        self._parser = None  # It refers to the connection, and the connection to it.

    def pause_writing(self) -> None:
        """The client takes less than is sent."""
        self.drained = self._loop.create_future()
        self._unsent = self._transport.get_write_buffer_size()
        self.deadline = self._loop.time() + self._listener.stall_seconds

    def resume_writing(self) -> None:
        """It has taken most of it."""
        drained, self.drained = self.drained, None
        if drained is not None:
            if self._current is not None and not self._transport.is_closing():
                self.deadline = math.inf
            if not drained.done():
                drained.set_result(None)

    def received(self, data: memoryview) -> None:
        """Something has come."""
        if self._deaf:
            return
        self._begun = False
        self._came = len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last = self._deaf = True  # The request is served as any other; what follows is no HTTP/1.1.
        except httptools.HttpParserError as error:
            self._refuse(error)
        else:
            if self._in_head:
                self._look_at_head()
            elif self._filling is not None:
                self._look_at_body(self._filling)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        self._in_head = self._begun = True
        self._head_size = 0
        self._url = b""
        self._headers = []

    def on_url(self, piece: bytes) -> None:
        """A piece of the target has come."""
        self._url += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come; those after a body are dropped."""
        if self._in_head:
            self._headers.append((name.lower(), value.rstrip(b" \t")))  # The parser leaves what comes after it.

    def on_headers_complete(self) -> None:
        """The head is whole: its request is answered, or waits until those before it are."""
        self._in_head = False
        if self._last:
            self._deaf = True
            return
        if not self._begun or self._came > MAX_HEAD or len(self._headers) > MAX_HEADERS:
            self._check_head()
        parser = self._parser
        exchange = Exchange(self, self._scope(parser), parser.should_keep_alive())
        self._filling = exchange
        self._sleeping = -self._came
        if self._current is None:
            self._begin(exchange)
            return
        self._waiting.append(exchange)
        if len(self._waiting) >= WAITING or sum(each.held for each in self._waiting) > HELD:
            self._last = True

    def on_body(self, piece: bytes) -> None:
        """A piece of a body has come."""
        if self._filling is not None:
            self._filling.feed(piece)
            self._sleeping = -self._came

    def on_message_complete(self) -> None:
        """The request is whole."""
        exchange, self._filling = self._filling, None
        if exchange is not None:
            exchange.complete = True
            exchange.wake()

    # What exchanges call.

    def lasts(self, exchange: Exchange) -> bool:
        """Whether another request may come after the answer that begins now."""
        last = self._listener.ending or (self._last and not self._waiting and not self._refusal)
        return exchange.keep_alive and exchange.complete and not last

    def write(self, data: bytes) -> None:
        """Send at once; to a client that has left, nothing."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait while the client takes less than is sent."""
        while self.drained is not None:
            await asyncio.shield(self.drained)

    def took(self) -> None:
        """The application has taken what had come of a body."""
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    # What the listener calls.

    def end(self) -> None:
        """Serve nothing further: close at once where no request is under way, else after its answer."""
        self._last = True
        if self._current is None:
            self._close()

    def abort(self) -> asyncio.Task[None] | None:
        """Cut it off. The request that it serves, which is told that its client has left."""
        self._transport.abort()
        return self._task

    def expire(self, now: float) -> None:
        """The deadline is over."""
        left = self._transport.get_write_buffer_size()
        if 0 < left < self._unsent:
            self._unsent = left
            self.deadline = now + self._listener.stall_seconds
        else:
            self._transport.abort()

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        self.deadline = math.inf
        self._task = self._loop.create_task(self._serve(exchange))

    async def _serve(self, exchange: Exchange) -> None:
        try:
            await self._listener.app(exchange.scope, exchange.receive, exchange.send)
        except Exception as error:
            # Places and the type alone: messages can hold what users wrote.
            places = "".join(traceback.format_tb(error.__traceback__))
            log.error("application_failed", error=type(error).__name__, places=places)
        finally:
            self._over(exchange)

    def _leave(self) -> None:
        """Tell the applications that the client has left."""
        self._last = self._deaf = True
        self._waiting.clear()
        for exchange in (self._current, self._filling):
            if exchange is not None:
                exchange.broken = True
                exchange.wake()
        self._filling = None

    def _over(self, exchange: Exchange) -> None:
        """The application has done with a request."""
        self._current = self._task = None
        transport = self._transport
        if transport.is_closing():
            return
        if self.drained is not None:
            transport.abort()  # The application did not wait for the client to take it.
            return
        if not exchange.finished:
            if exchange.started:
                transport.abort()  # So that nobody takes what came for the whole.
                return
            self.write(_answer(failed(), exchange.scope))
        told = exchange.closes or not exchange.finished
        if told or self._listener.ending:
            # A client that meant to go on may have sent more by now. One that was told closes its side soon.
            self._close(lingering=self._deaf or not exchange.complete or (told and exchange.keep_alive))
        elif self._waiting:
            self._begin(self._waiting.popleft())
        elif self._last:
            self.write(self._refusal)
            self._close(lingering=True)
        else:
            self.deadline = self._loop.time() + (HEAD_SECONDS if self._in_head else IDLE_SECONDS)

    def _close(self, *, lingering: bool = False) -> None:
        """End the connection once what was sent has gone out. `lingering`: the client may still send, and would lose
        its answers if it were cut off.
        """
        self._last = self._deaf = True
        self._waiting.clear()
        self._unsent = self._transport.get_write_buffer_size()
        hurried = self._listener.ending or (lingering and not self._unsent)
        self.deadline = self._loop.time() + (LINGER_SECONDS if hurried else self._listener.stall_seconds)
        if not lingering:
            self._transport.close()
            return
        self.took()
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
        except OSError:  # The client has reset the connection, and nothing was read since.
            self._transport.abort()

    def _look_at_head(self) -> None:
        """A part of a head is there."""
        if not self._begun:
            self._head_size += self._came
            if self._head_size > MAX_HEAD:
                self._refuse(too_large())
        elif self._current is None:
            self.deadline = self._loop.time() + HEAD_SECONDS

    def _check_head(self) -> None:
        size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        if size > MAX_HEAD or len(self._headers) > MAX_HEADERS:
            raise too_large()

    def _check_version(self, version: str) -> None:
        if version != "1.0":
            raise InvalidRequestError(f"This is no request of HTTP/1.1: its version is {version}")
        if any(name == b"transfer-encoding" for name, _ in self._headers):
            raise InvalidRequestError("A request of HTTP/1.0 has no Transfer-Encoding", hint="Send its Content-Length")

    def _look_at_body(self, exchange: Exchange) -> None:
        """A part of a body is there."""
        self._sleeping += self._came
        if self._sleeping > MAX_HEAD:  # Headers after a body, or what surrounds its pieces.
            self._refuse(too_large())
        elif exchange.held > HELD:
            self._reading = False
            self._transport.pause_reading()

    def _refuse(self, fault: Exception) -> None:
        """What came is no request, and is answered so, after those before it."""
        if self._deaf:  # It came behind requests that are dropped.
            return
        self._last = self._deaf = True
        filling, self._filling = self._filling, None
        if filling is not None and filling is self._current and not filling.held and self._unasked():
            # Its head says no framing, or what follows is none from its beginning.
            cast(asyncio.Task[None], self._task).cancel()
            self._current = self._task = filling = None
        if filling is not None:  # Its application answers.
            filling.broken = True
            filling.wake()
            return
        self._refusal = _answer(refusal(fault))
        if self._current is None:
            self.write(self._refusal)
            self._close(lingering=True)

    def _unasked(self) -> bool:
        """Whether the application has not been given the request yet."""
        coroutine: Any = cast(asyncio.Task[None], self._task).get_coro()
        return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED

    def _scope(self, parser: Any) -> MutableMapping[str, Any]:
        version = parser.get_http_version()
        if version != "1.1":
            self._check_version(version)
        target = self._url
        if not target.startswith(b"/"):
            target = _origin_form(target)
        if b"#" in target:
            target = target.partition(b"#")[0]
        raw, _, query = target.partition(b"?")
        path = (unquote_to_bytes(raw) if b"%" in raw else raw).decode("utf-8", "replace")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": path,
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            **self._ends,
        }


def _answer(error: AgentWorldError, request: MutableMapping[str, Any] = _UNKNOWN) -> bytes:
    """An answer in place of the application's, with which the connection ends."""
    body = msgspec.json.encode(error.to_dict())
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start = {"status": error.status, "headers": headers}
    head, framing = framed_head(start, request, lasts=False)
    return head + framing.piece(body, last=True)


def _origin_form(target: bytes) -> bytes:
    """The path and query of a target that is a whole address, as proxies are sent; others as they are."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return target
    if not url.host:
        return target
    return (url.path or b"/") + (b"?" + url.query if url.query else b"")


def _address(name: Any) -> tuple[str, int] | None:
    return (name[0], name[1]) if isinstance(name, tuple) else None
