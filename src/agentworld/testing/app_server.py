"""Serves an ASGI app inside a test, on a free port, in the test's own event loop.

In a test::

    async with AppServer(create_gateway(settings, pool)) as server:
        ...                       # server.url

It is the server of `agentworld serve`, without its processes. The app is asked with all rights; one that checks keys
itself says then what each may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from agentworld.gateway.access import EVERYTHING, GRANT
from agentworld.http_server.lifespan import ASGI, Lifespan, Receive, Scope, Send
from agentworld.http_server.listener import Listener
from agentworld.http_server.running import bound

END_SECONDS = 1.0
"""Time that requests have at the end."""


class AppServer:
    """An ASGI app on `url` while it is entered; its lifespan is run."""

    def __init__(self, app: ASGI, host: str = "127.0.0.1") -> None:
        self._app = app
        self._host = host
        self._lifespan = Lifespan(app)
        self._listener: Listener | None = None
        self.url = ""

    async def __aenter__(self) -> AppServer:
        await self._lifespan.startup()
        self._listener = Listener(self._granted)
        listening = bound(self._host, 0)
        self.url = f"http://{self._host}:{listening.getsockname()[1]}"
        await self._listener.begin(listening)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            try:
                await asyncio.wait_for(self._listener.end(), END_SECONDS)
            except TimeoutError:
                await self._listener.abort()
        await self._lifespan.shutdown()

    def _granted(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        scope.setdefault(GRANT, EVERYTHING)
        return self._app(scope, receive, send)
