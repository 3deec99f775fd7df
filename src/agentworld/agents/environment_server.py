"""Environments over HTTP on the loopback address, for agents in other processes.

    GET  /{token}/tools   -> {"tools": [...]}
    POST /{token}/step    {"name", "arguments"} -> {"content", "done"}

The token is random and belongs to one rollout: no agent can reach another one's environment. `arguments` may be an
object or its JSON text, as models send it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from agentworld.tasks.base import Environment

MAX_BODY = 16 * 1024 * 1024


class EnvironmentServer:
    """Serves the environments of running rollouts. `async with EnvironmentServer() as server`."""

    def __init__(self) -> None:
        self._environments: dict[str, Environment] = {}
        self._runner: web.AppRunner | None = None
        self._origin = ""

    async def __aenter__(self) -> EnvironmentServer:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/{token}/tools", self._tools)
        app.router.add_post("/{token}/step", self._step)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @asynccontextmanager
    async def serving(self, environment: Environment) -> AsyncIterator[str]:
        """The address of `environment` for the length of the block."""
        token = secrets.token_urlsafe(18)
        self._environments[token] = environment
        try:
            yield f"{self._origin}/{token}"
        finally:
            del self._environments[token]

    async def _tools(self, request: web.Request) -> web.Response:
        environment = self._environments.get(request.match_info["token"])
        return _json({"tools": environment.tools}) if environment else _error(404, "no such environment")

    async def _step(self, request: web.Request) -> web.Response:
        environment = self._environments.get(request.match_info["token"])
        if environment is None:
            return _error(404, "no such environment; its rollout may have ended")
        try:
            action = msgspec.json.decode(await request.read(), type=Action)
        except msgspec.MsgspecError as error:
            return _error(400, f"the action cannot be read: {error}")
        arguments = action.arguments
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        try:
            content, done = await asyncio.to_thread(environment.step, action.name, arguments)
        except Exception as error:  # An environment is somebody's code; the agent hears of its fault.
            return _error(500, f"the environment failed: {type(error).__name__}: {error}")
        return _json({"content": content, "done": done})


class Action(msgspec.Struct, frozen=True):
    """One tool call."""

    name: str
    arguments: str | dict[str, object] = ""


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    return _json({"error": {"message": message}}, status)
