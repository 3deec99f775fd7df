"""A small HTTP/1.1 client for engines: kept connections, whole bodies and streams, with nothing in between.

Left out on purpose: redirects, cookies, proxies, uploads in pieces. Replies are asked for uncompressed.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from agentworld.engines.broken import BrokenError, ConnectError
from agentworld.engines.headers import check_header
from agentworld.engines.http_link import Answer, Link
from agentworld.timing_wheel import TimingWheel

_MOST_HEADS = 64  # beginnings of requests that are kept


class HttpClient:
    """Connections to one origin. Call from one event loop.

    `idle_seconds`: how long after a call a connection may serve the next one; `connect_seconds`: how long one may take
    to be made.
    """

    def __init__(self, origin: str, *, connect_seconds: float, idle_seconds: float) -> None:
        parts = urlsplit(origin)
        self.origin = origin
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._authority = parts.netloc
        self._prefix = parts.path.rstrip("/")
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self.wheel = TimingWheel()
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._idle: list[Link] = []
        self._links: set[Link] = set()

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, seconds: float, stale_seconds: float
    ) -> Answer:
        """The reply to a request. ConnectError, BrokenError, TimeoutError where the whole reply takes longer than
        `seconds`, or HeaderError.

        Sent once more, on a new connection, where a kept one breaks before a byte of the reply and within
        `stale_seconds`: the other side had closed it and took nothing, which shows at once, unlike a crash. What was
        sent on a new connection may have been taken, and is never sent again.
        """
        sized = bool(body) or method == "POST"
        known = (sized, method, path, *headers.items())
        head = self._heads.get(known)
        if head is None:
            head = self._heads[known] = self._head(method, path, headers, sized)
        data = b"%b%d\r\n\r\n%b" % (head, len(body), body) if sized else head + b"\r\n"
        kept = self._kept()
        if kept is None:
            return await (await self._connect()).call(data, seconds)
        begun = time.monotonic()
        try:
            return await kept.call(data, seconds)
        except BrokenError as error:
            if error.begun or time.monotonic() - begun > stale_seconds:
                raise
        return await (await self._connect()).call(data, seconds)

    def _head(self, method: str, path: str, headers: Mapping[str, str], sized: bool) -> bytes:
        """What each request like this one begins with, up to the length of its body where that is said."""
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"host: {self._authority}", "accept-encoding: identity"]
        for name, value in headers.items():
            check_header(name, value)
            lines.append(f"{name}: {value}")
        lines.append("content-length: " if sized else "")
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        return "\r\n".join(lines).encode("latin-1")

    def _kept(self) -> Link | None:
        """A connection that an earlier call left."""
        now = time.monotonic()
        while self._idle:
            link = self._idle.pop()
            if link.open and now - link.idle_since < self._idle_seconds:
                return link
            link.abort()
        return None

    async def _connect(self) -> Link:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, link = await loop.create_connection(lambda: Link(self), self._host, self._port, ssl=self._tls)
        except TimeoutError:
            raise
        except (OSError, ssl.SSLError) as error:
            raise ConnectError(error.strerror or str(error)) from error
        if link.open:  # It may be lost again by now, and would then never be forgotten.
            self._links.add(link)
        return link

    def keep(self, link: Link) -> None:
        """Take back a connection for the next call."""
        link.idle_since = time.monotonic()
        self._idle.append(link)

    def forget(self, link: Link) -> None:
        """A connection has ended."""
        self._links.discard(link)
        if link in self._idle:
            self._idle.remove(link)

    async def close(self) -> None:
        """End all connections, and return when they are."""
        for link in list(self._links):
            link.abort()
        self._idle.clear()
        await asyncio.sleep(0)
