"""One HTTP exchange over raw ASGI: bounded bodies, JSON replies, event streams, and noticing that the client left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from typing import Any

import msgspec

from agentworld.errors import AgentWorldError, InvalidRequestError, RequestTimeoutError, TooLargeError
from agentworld.gateway.access import grant_of, presented_key
from agentworld.gateway.leaving import Leaving
from agentworld.gateway.metrics import Stopwatch
from agentworld.gateway.waiting import OverTimeError, within
from agentworld.http_server.exchange import Exchange
from agentworld.timing_wheel import TimingWheel

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_HEADER_LENGTH = 16 * 1024
WRITE_SECONDS = 60.0


class ClientGoneError(AgentWorldError):
    """The client closed the connection before it had its reply."""

    code = "client_closed_request"
    status = 499


def too_slow(seconds: float) -> RequestTimeoutError:
    """The error of a request whose body took too long."""
    return RequestTimeoutError(
        f"the body did not arrive within {seconds:g} s", hint="Send it faster, or raise body_timeout on the server"
    )


def broken_off() -> InvalidRequestError:
    """The error of a request whose body is not whole. Its client may still read: a proxy, or one that sends a chunk
    wrongly.
    """
    return InvalidRequestError("The body broke off before its end", path="$")


def _takes_nothing(seconds: float) -> ClientGoneError:
    return ClientGoneError(
        f"the client took nothing of its reply for {seconds:g} s",
        hint="Read replies as they come, or raise write_timeout on the server",
    )


class Http:
    """The request and the way to answer it. `headers`: added to whatever is answered. `write_timeout`: seconds in which
    the client has to take what is sent, piece by piece; else it counts as gone. `wheel`: for limits of time.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        write_timeout: float = WRITE_SECONDS,
        wheel: TimingWheel | None = None,
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope.get("query_string") or b""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.facts: dict[str, Any] = {}
        """For the log line: ids and names, never content."""
        self.grant = grant_of(scope)
        self._raw: list[tuple[bytes, bytes]] = list(scope.get("headers") or [])
        self.by_name: dict[bytes, bytes] = {}
        for name, value in self._raw:
            self.by_name.setdefault(name.lower(), value)
        self._receive = receive
        self._send = send
        owner = getattr(send, "__self__", None)
        # Where nothing stands in between that would have to see what comes and goes.
        known = type(owner) is Exchange and getattr(receive, "__self__", None) is owner
        self._exchange: Exchange | None = owner if known else None
        self.write_timeout = write_timeout
        self._wheel = wheel or TimingWheel()
        self._stalled = False
        self.started = False
        self.watch = Stopwatch()

    @property
    def key(self) -> str:
        """The API key that the caller shows, "" without one."""
        return presented_key(self._raw)

    def header(self, name: str) -> str | None:
        """The first header of that name (lower case), or None; bytes that are no text become U+FFFD."""
        value = self.by_name.get(name.encode())
        return None if value is None else value[:MAX_HEADER_LENGTH].decode("utf-8", "replace").strip()

    def add_header(self, name: str, value: str) -> None:
        """Send a header with the answer."""
        self.headers.append((name.encode(), value.encode("ascii", "replace")))

    async def body(self, limit: int, seconds: float | None = None) -> bytes:
        """The whole body; TooLargeError over `limit` bytes, InvalidRequestError where it breaks off,
        RequestTimeoutError where it takes longer than `seconds`.
        """
        if self._exchange is not None and (whole := self._exchange.whole()) is not None:
            if len(whole) > limit:
                raise self._too_large(limit)
            return whole
        self.watch.wait()
        try:
            return await within(self._wheel, seconds, self._whole_body(limit))
        except OverTimeError:
            self.add_header("connection", "close")
            raise too_slow(seconds or 0.0) from None
        finally:
            self.watch.work()

    async def _whole_body(self, limit: int) -> bytes:
        said = self.by_name.get(b"content-length", b"")
        declared = int(said) if said.isdigit() and len(said) < 20 else None
        if declared is not None and declared > limit:
            raise self._too_large(limit)
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise broken_off()
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise self._too_large(limit)
            chunks.append(chunk)
            # Its end needs no waiting for where it is known: the server takes no more than was declared.
            if size == declared or not message.get("more_body"):
                return chunk if size == len(chunk) else b"".join(chunks)

    def _too_large(self, limit: int) -> TooLargeError:
        return TooLargeError(f"the body is over the limit of {limit} bytes", hint="Raise max_body_bytes, or send less")

    def leaving(self, left: Callable[[], None]) -> Leaving:
        """Calls `left` when the client has left; sends to it would succeed in silence."""
        return Leaving(self._wheel, self._receive, left)

    async def reply(self, status: int, body: Any, content_type: bytes = b"application/json") -> None:
        """Answer with a whole body; anything but bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        start = self._start(status, content_type, [(b"content-length", b"%d" % len(data))])
        if self.method == "HEAD":
            data = b""
        if self._exchange is None:
            await self._write(start, {"type": "http.response.body", "body": data})
        elif not self._exchange.answer(status, start["headers"], data):
            await self._taken(self._exchange.drain())

    async def begin_events(self) -> None:
        """Begin a stream of server-sent events."""
        more = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await self._write(self._start(200, b"text/event-stream; charset=utf-8", more))

    async def chunk(self, data: bytes, *, last: bool = False) -> None:
        """Send a piece of a stream."""
        await self._write({"type": "http.response.body", "body": data, "more_body": not last})

    def _start(self, status: int, content_type: bytes, more: list[tuple[bytes, bytes]]) -> MutableMapping[str, Any]:
        self.status = status
        self.started = True
        # Replies hold what models and callers wrote: no browser may take them for a page.
        headers = [(b"content-type", content_type), (b"x-content-type-options", b"nosniff"), *more, *self.headers]
        return {"type": "http.response.start", "status": status, "headers": headers}

    async def _sent(self, messages: Iterable[MutableMapping[str, Any]]) -> None:
        for message in messages:
            await self._send(message)

    async def _write(self, *messages: MutableMapping[str, Any]) -> None:
        """Send something; ClientGoneError where the client takes nothing any more."""
        if self._stalled:
            raise _takes_nothing(self.write_timeout)
        await self._taken(self._sent(messages))

    async def _taken(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            await within(self._wheel, self.write_timeout, sending)
        except OverTimeError:
            self._stalled = True
            raise _takes_nothing(self.write_timeout) from None
