"""Calls over keep-alive connections with as little work as possible, so that the server is what is measured."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agentworld.errors import AgentWorldError

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_END = b"\r\n0\r\n\r\n"


class CallFailedError(AgentWorldError):
    """A call of a measurement was answered with an error, or not at all."""

    code = "measurement_failed"


@dataclass
class Reply:
    """What came back. `seconds`: until its last byte."""

    status: int
    body: bytes
    seconds: float

    @property
    def events(self) -> int:
        """How many events a streamed reply has, but for the one that only ends it."""
        return self.body.count(b"data: ") - self.body.count(b"data: [DONE]")


class Connection(asyncio.Protocol):
    """One connection; one call at a time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._need: int | None = None
        self._head = b""
        self._begun = 0.0
        self._done: asyncio.Future[Reply] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._transport = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(CallFailedError(f"the server closed the connection: {exc}"))

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if not self._head:
            whole = b"".join(self._parts) + data
            end = whole.find(b"\r\n\r\n")
            if end < 0:
                self._parts = [whole]
                return
            self._head, rest = whole[:end], whole[end + 4 :]
            found = _LENGTH.search(self._head)
            self._need = int(found[1]) if found is not None else None
            self._parts, self._size = [rest], len(rest)
        else:
            self._parts.append(data)
            self._size += len(data)
        if self._need is None:
            tail = self._parts[-1] if len(self._parts[-1]) >= len(_END) else b"".join(self._parts[-8:])
            ended = tail.endswith(_END)
        else:
            ended = self._size >= self._need
        if ended and self._done is not None and not self._done.done():
            seconds = time.perf_counter() - self._begun
            self._done.set_result(Reply(int(self._head[9:12]), b"".join(self._parts), seconds))

    async def call(self, data: bytes) -> Reply:
        """Send a whole request and return what came back."""
        if self._transport is None:
            raise CallFailedError("the connection is closed")
        self._head, self._parts, self._size, self._need = b"", [], 0, None
        self._done = asyncio.get_running_loop().create_future()
        self._begun = time.perf_counter()
        self._transport.write(data)
        return await self._done

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()


async def connect(url: str) -> Connection:
    """A connection to the server at `url`."""
    parts = urlsplit(url)
    _, connection = await asyncio.get_running_loop().create_connection(
        Connection, parts.hostname or "", parts.port or 80
    )
    return connection


def post(url: str, path: str, body: bytes) -> bytes:
    """The bytes of a request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Load:
    """What a load gave. `latencies`: of whole calls, in seconds."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    events: int = 0

    @property
    def rate(self) -> float:
        """Calls a second."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """Of the latencies, in milliseconds."""
        return 1000 * quantile(self.latencies, share)


def quantile(values: list[float], share: float) -> float:
    """The value below which that share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def load(url: str, make: Callable[[int], bytes], calls: int, concurrency: int) -> Load:
    """`calls` calls, `concurrency` of them at a time; `make` gives the request of each. CallFailedError at the first
    that fails.
    """
    connections = [await connect(url) for _ in range(concurrency)]
    found = Load(seconds=0.0)
    numbers = iter(range(calls))

    async def worker(connection: Connection) -> None:
        for number in numbers:
            reply = await connection.call(make(number))
            if reply.status != 200:
                raise CallFailedError(f"{url} answered {reply.status}: {reply.body[:300]!r}")
            found.latencies.append(reply.seconds)
            found.events += reply.events

    begun = time.perf_counter()
    try:
        await asyncio.gather(*(worker(connection) for connection in connections))
    finally:
        for connection in connections:
            connection.close()
    found.seconds = time.perf_counter() - begun
    return found
