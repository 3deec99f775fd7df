"""The ASGI lifespan protocol, driven from outside: one server holds several applications."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from agentworld.errors import AgentWorldError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# Frameworks type these three in ways of their own, so an application is anything that takes them.
ASGI = Callable[[Any, Any, Any], Awaitable[None]]


class Lifespan:
    """Starts and stops one application."""

    def __init__(self, app: ASGI) -> None:
        self._app = app
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._from_app: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Start; the error that the application raised, or AgentWorldError with what it reported."""
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self._task = asyncio.create_task(self._run(scope))
        await self._exchange("startup")

    async def shutdown(self) -> None:
        """Stop, if it was started."""
        if self._task is not None and not self._task.done():
            await self._exchange("shutdown")
            await self._task

    async def _run(self, scope: Scope) -> None:
        await self._app(scope, self._to_app.get, self._from_app.put)

    async def _exchange(self, phase: str) -> None:
        assert self._task is not None
        await self._to_app.put({"type": f"lifespan.{phase}"})
        answer = asyncio.create_task(self._from_app.get())
        await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done() and self._from_app.empty():
            answer.cancel()
            self._task.result()
            raise AgentWorldError(f"The application ended during {phase}")
        message = await answer
        if message["type"].endswith(".failed"):
            if self._task.done():
                self._task.result()
            raise AgentWorldError(f"{phase} failed: {message.get('message', '')}")
