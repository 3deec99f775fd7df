"""Serves an ASGI app inside a test, on a free port, in the test's own event loop.

In a test::

    async with AppServer(create_gateway(settings, pool)) as server:
        ...                       # server.url

The app is asked with all rights; one that checks keys itself says then what each may. A client that leaves is seen by
the app as `http.disconnect`, at once. Left out on purpose: websockets, HTTP/2, several workers; `agentworld serve` has
those.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from aiohttp import web

from agentworld.gateway.access import EVERYTHING, GRANT

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class AppServer:
    """An ASGI app on `url` while it is entered; its lifespan is run."""

    def __init__(self, app: App, host: str = "127.0.0.1") -> None:
        self._app = app
        self._host = host
        self._runner: web.AppRunner | None = None
        self._lifespan: asyncio.Task[None] | None = None
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self.url = ""

    async def __aenter__(self) -> AppServer:
        self._lifespan = asyncio.ensure_future(
            self._app({"type": "lifespan", "asgi": {"version": "3.0"}}, self._to_app.get, self._from_app.put)
        )
        await self._lifespan_event("lifespan.startup")
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._handle)
        options: dict[str, Any] = {"access_log": None, "shutdown_timeout": 1.0}
        options["auto_decompress"] = False  # Servers hand bodies on as they came.
        self._runner = web.AppRunner(application, handler_cancellation=True, **options)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, 0, backlog=1024).start()
        self.url = f"http://{self._host}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        await self._lifespan_event("lifespan.shutdown")
        if self._lifespan is not None:
            await self._lifespan

    async def _lifespan_event(self, kind: str) -> None:
        await self._to_app.put({"type": kind})
        answer = await self._from_app.get()
        if not answer["type"].endswith(".complete"):
            raise RuntimeError(f"{kind} failed: {answer.get('message')}")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        connection = _Connection(request)
        serving = asyncio.ensure_future(self._app(connection.scope(), connection.receive, connection.send))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            # The client has left: the app is told, and may finish what it does on that.
            connection.gone.set()
            await serving
            raise
        response = connection.response
        if response is None:
            raise RuntimeError("the app ended without an answer")
        with contextlib.suppress(ConnectionResetError):  # The client may leave with the last event.
            await response.write_eof()
        return response


class _Connection:
    """One request as ASGI messages."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._read = False
        self.gone = asyncio.Event()
        self.response: web.StreamResponse | None = None

    def scope(self) -> Message:
        request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.raw_path.encode(),
            "query_string": request.rel_url.raw_query_string.encode(),
            "root_path": "",
            "headers": [(key.lower(), value) for key, value in request.raw_headers],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
            GRANT: EVERYTHING,
        }

    async def receive(self) -> Message:
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": await self._request.content.read(), "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.gone.is_set():
            return  # As real servers do: a send to a client that has left succeeds in silence.
        if message["type"] == "http.response.start":
            self.response = web.StreamResponse(status=message["status"])
            for key, value in message["headers"]:
                self.response.headers.add(key.decode(), value.decode())
            await self.response.prepare(self._request)
        elif self.response is not None:
            await self.response.write(message["body"])
            if not message.get("more_body", False):
                self.gone.set()  # After the response, `receive` tells of a disconnect, as the protocol has it.
