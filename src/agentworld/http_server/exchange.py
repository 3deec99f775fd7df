"""One request on a connection, and the way to answer it, as an ASGI application sees them."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from agentworld.http_server.heads import CONTINUE, Framing, framed_head

if TYPE_CHECKING:
    from agentworld.http_server.connection import Connection

Message = MutableMapping[str, Any]


class Exchange:
    """A request and its answer. `keep_alive`: whether the client may send another request after it.

    Sending to a client that has left does nothing; `receive` says that it has. An application that knows this server
    finds it as `send.__self__`. Its scope does not refer to it: they would be a cycle, which waits for the collector.
    """

    __slots__ = (
        "_chunks",
        "_connection",
        "_continued",
        "_framing",
        "_head",
        "_told",
        "_waiting",
        "broken",
        "closes",
        "complete",
        "finished",
        "held",
        "keep_alive",
        "scope",
        "started",
        "status",
    )

    def __init__(self, connection: Connection, scope: Message, keep_alive: bool) -> None:
        self._connection = connection
        self.scope = scope
        self.keep_alive = keep_alive
        self._chunks: list[bytes] = []
        self.held = 0
        """Bytes of the body that the application has not taken."""
        self.complete = False
        """Whether the whole body has come."""
        self.broken = False
        """Whether no more of it will come: the client has left, or sent something else than a body."""
        self._continued = False
        self._told = False
        self._waiting: list[asyncio.Future[None]] = []
        self._framing: Framing | None = None
        self._head = b""  # of an answer whose body is awaited, so that both go out together
        self.status = 0
        """Of the answer; 0 before it has begun."""
        self.started = False
        """Whether something of the answer was given to the connection."""
        self.finished = False
        """Whether the whole answer was given to the connection."""
        self.closes = False
        """Whether that said that the connection ends with it."""

    def feed(self, chunk: bytes) -> None:
        """A piece of the body has come."""
        self._chunks.append(chunk)
        self.held += len(chunk)
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """Have whoever waits for the client look again."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def receive(self) -> Message:
        """The next piece of the body; after its end, and where it breaks off, that the client has left."""
        while True:
            if not self._told:
                if self._chunks or self.complete:
                    return self._taken()
                if self.broken:
                    return {"type": "http.disconnect"}
                if not (self._continued or self.started):
                    self._continued = True
                    if _expects_continue(self.scope):
                        self._connection.write(CONTINUE)
            elif self.broken or self.finished:
                return {"type": "http.disconnect"}
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            finally:
                self._waiting.remove(waiting)

    def whole(self) -> bytes | None:
        """What was not taken of the body, where all of that is there in one piece; None otherwise: see `receive`."""
        if not self.complete or self._told or len(self._chunks) != 1:
            return None
        self._told = True
        self.held = 0
        return self._chunks.pop()

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Answer as a whole, in place of `send`. Whether the client takes it at once: else wait for `drain`."""
        connection = self._connection
        self._begin({"status": status, "headers": headers})
        self._put(body, last=True)
        return connection.drained is None

    async def drain(self) -> None:
        """Wait while the client takes less than is sent."""
        await self._connection.drain()

    def _taken(self) -> Message:
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._chunks = []
        self._told = self.complete
        self.held = 0
        self._connection.took()
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def send(self, message: Message) -> None:
        """Answer, piece by piece. Waits while the client takes less than is sent. RuntimeError where the application
        does not answer as it should; ValueError for a head that HTTP cannot carry.
        """
        if message["type"] == "http.response.start":
            self._begin(message)
            return
        self._put(message.get("body", b""), last=not message.get("more_body", False))
        if self._connection.drained is not None:
            await self._connection.drain()

    def _begin(self, start: Message) -> None:
        if self._framing is not None:
            raise RuntimeError("this request has been answered")
        head, self._framing = framed_head(start, self.scope, self._connection.lasts(self))
        self.status = start["status"]
        if self._framing.length is None:  # Whoever waits for a stream sees that it begins.
            self.started = True
            self._connection.write(head)
        else:
            self._head = head

    def _put(self, body: bytes, *, last: bool) -> None:
        framing = self._framing
        if framing is None or self.finished:
            raise RuntimeError("a piece of an answer came before its beginning or after its end")
        data = self._head + framing.piece(body, last=last)
        self._head = b""
        self.started = True
        if last:
            self.finished = True
            self.closes = framing.closes
            if self._waiting:
                self.wake()
        if data:
            self._connection.write(data)


def _expects_continue(scope: Message) -> bool:
    """Whether the client waits for a word before it sends the body."""
    return scope["http_version"] != "1.0" and any(
        name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
    )
