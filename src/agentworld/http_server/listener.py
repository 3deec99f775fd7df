"""The connections of one worker: taken from a socket, ended when their time is over, and let out at the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from agentworld.http_server.connection import Connection

BACKLOG = 2048
SWEEP_SECONDS = 1.0
ABORT_SECONDS = 5.0
ASGI = Callable[[Any, Any, Any], Awaitable[None]]


class Listener:
    """Serves `app` to whoever connects. `stall_seconds`: time in which a client has to take something of what waits
    for it. Make and use it in a running event loop.
    """

    def __init__(self, app: ASGI, stall_seconds: float = 60.0) -> None:
        self.app = app
        self.stall_seconds = stall_seconds
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.ending = False
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    async def begin(self, listening: socket.socket) -> None:
        """Take connections from a bound socket."""
        self._server = await self.loop.create_server(lambda: Connection(self), sock=listening, backlog=BACKLOG)
        self._sweep()

    def gone(self, connection: Connection) -> None:
        """A connection is over."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    async def end(self) -> None:
        """Take no further connection; return once those that are there are over. Each ends after its answer."""
        self.ending = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.end()
        await self._until_empty()

    async def abort(self) -> None:
        """Cut off whatever is still connected, and return once the requests are over: they are told that their clients
        have left, and cancelled where they still go on after a while.
        """
        tasks = [task for each in self.connections if (task := each.abort()) is not None]
        if tasks:
            _, going = await asyncio.wait(tasks, timeout=ABORT_SECONDS)
            for task in going:
                task.cancel()
            await asyncio.gather(*going, return_exceptions=True)
        await self._until_empty()

    async def _until_empty(self) -> None:
        while self.connections:
            self._empty.clear()
            await self._empty.wait()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in [each for each in self.connections if each.deadline <= now]:
            connection.expire(now)
        self._sweeping = self.loop.call_later(SWEEP_SECONDS, self._sweep)
