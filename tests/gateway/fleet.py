"""A gateway over several scripted engines of one model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from agentworld.config import ModelSettings, ServeSettings
from agentworld.engines.backend import Wire
from agentworld.gateway import Gateway, create_gateway
from agentworld.gateway.clock import Clock
from agentworld.gateway.models import FIRST_PROBE_SECONDS, PROBE_SECONDS
from agentworld.gateway.upstreams import EngineFigures, Upstream
from agentworld.pool import Pool, open_store
from agentworld.testing import ScriptedEngine
from agentworld.testing.app_server import AppServer
from agentworld.testing.scripted_engine import Script

from .clocks import QuickClock
from .harness import Harness


class Idle(QuickClock):
    """Sleeps take no time, apart from those before a probe: no test waits for these, and they come for ever."""

    async def sleep(self, seconds: float) -> None:
        if seconds in (FIRST_PROBE_SECONDS, PROBE_SECONDS):
            await asyncio.Event().wait()
        await super().sleep(seconds)


class Fleet(Harness):
    """One running gateway; `engines` in the order of the settings."""

    def __init__(
        self, engines: list[ScriptedEngine], gateway: Gateway, pool: Pool, url: str, http: aiohttp.ClientSession
    ) -> None:
        super().__init__(engines[0], gateway, pool, url, http)
        self.engines = engines

    @property
    def upstreams(self) -> list[Upstream]:
        """What the gateway knows of the engines, in their order."""
        return self.gateway.models.by_name["scripted"].upstreams.all

    def figures(self) -> list[EngineFigures]:
        """The counters of the engines, in their order."""
        return [each.figures for each in self.upstreams]

    def home(self, number: int, count: int = 1) -> str:
        """A trajectory whose calls go to engine `number`, and next to the following ones in their order."""
        ranking = [self.upstreams[(number + place) % len(self.upstreams)] for place in range(count)]
        upstreams = self.gateway.models.by_name["scripted"].upstreams
        names = (f"t{attempt}" for attempt in range(100_000))
        return next(name for name in names if upstreams.ranked(name)[:count] == ranking)

    def calls(self) -> list[int]:
        """How many calls each engine took."""
        return [len(engine.requests) for engine in self.engines]


@asynccontextmanager
async def fleet(
    *scripts: Script,
    tokens: str = "engine",
    pool: Pool | None = None,
    serve: dict[str, Any] | None = None,
    clock: Clock | None = None,
    dead: Sequence[int] = (),
    pause_wait: float = 0.0,
    **model: Any,
) -> AsyncIterator[Fleet]:
    """A fleet with one engine a script, on a clock whose sleeps take no time; nothing answers where the `dead` are."""
    store = pool or open_store("memory://")
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(ScriptedEngine(script)) for script in scripts]
        addresses = [engine.url for engine in engines]
        for number in dead:
            await engines[number].__aexit__()
        settings = ModelSettings(
            **{
                "name": "scripted",
                "upstream": addresses[0],
                "upstreams": tuple(addresses[1:]),
                "driver": "builtin",
                "tokens": tokens,
                "tokenizer": "byte" if tokens == "token-in" else None,
                **model,
            }
        )
        serving = ServeSettings(models=(settings,), **(serve or {}))
        gateway = create_gateway(serving, store, pause_wait=pause_wait, clock=clock or Idle())
        server = await stack.enter_async_context(AppServer(gateway))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        harness = Fleet(engines, gateway, store, server.url, http)
        stack.push_async_callback(harness.close)
        yield harness


class _Silent(Wire):
    """Leaves out what the engine knows of its weights."""

    def body(self, body: dict[str, Any]) -> bytes:
        return super().body(_without(body))

    def chunk(self, chunk: dict[str, Any]) -> list[bytes]:
        return super().chunk(_without(chunk))


def _without(body: dict[str, Any]) -> dict[str, Any]:
    hidden = ("policy_version", "policy_run", "version_spans")
    out = {name: value for name, value in body.items() if name not in hidden}
    choices = [{key: value for key, value in each.items() if key not in hidden} for each in body["choices"]]
    return {**out, "choices": choices}


def silence(engine: ScriptedEngine) -> None:
    """Have the engine say nothing of its weights, like vLLM itself."""
    engine.wire = lambda job: _Silent()  # type: ignore[method-assign]
