"""A gateway over a scripted engine and a pool, served on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai

from agentworld.config import ModelSettings, ServeSettings
from agentworld.gateway import Gateway, create_gateway
from agentworld.pool import Pool, open_store
from agentworld.records import Step
from agentworld.testing import ScriptedEngine
from agentworld.testing.app_server import AppServer
from agentworld.testing.scripted_engine import Script


class Harness:
    """One running gateway; `steps` reads the pool."""

    def __init__(
        self, engine: ScriptedEngine, gateway: Gateway, pool: Pool, url: str, http: aiohttp.ClientSession
    ) -> None:
        self.engine = engine
        self.gateway = gateway
        self.pool = pool
        self.url = url
        self.http = http
        self._clients: list[openai.AsyncOpenAI] = []

    def client(self, path: str = "", key: str = "none", **more: Any) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(base_url=f"{self.url}{path}/v1", api_key=key, **{"max_retries": 0, **more})
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Close the clients; what the garbage collector finds open it reports at the worst of times."""
        for client in self._clients:
            await client.close()

    async def chat(self, body: dict[str, Any], path: str = "", **headers: str) -> tuple[int, dict[str, Any], Any]:
        """Status, body and headers of a plain call."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.post(f"{self.url}{path}/v1/chat/completions", json=body, headers=names) as response:
            return response.status, await response.json(), response.headers

    async def say(self, text: str, path: str = "", **headers: str) -> tuple[int, dict[str, Any], Any]:
        return await self.chat({"messages": [{"role": "user", "content": text}]}, path, **headers)

    def steps(self, trajectory_id: str | None = None) -> list[Step]:
        page = self.pool.list_steps(trajectory_id=trajectory_id, include=("tokens", "messages", "logprobs"), limit=200)
        assert page.next_cursor is None
        return page.items


@asynccontextmanager
async def running(
    script: Script = "ok",
    *,
    tokens: str = "engine",
    pool: Pool | str = "memory://",
    engine: dict[str, Any] | None = None,
    pause_wait: float = 0.0,
    serve: dict[str, Any] | None = None,
    **model: Any,
) -> AsyncIterator[Harness]:
    """A harness; `tokens` as in the model's settings, token-in over the byte tokenizer."""
    store = open_store(pool) if isinstance(pool, str) else pool
    async with ScriptedEngine(script, **(engine or {})) as scripted:
        tokenizer = "byte" if tokens == "token-in" else None
        settings = ModelSettings(
            **{
                "name": "scripted",
                "upstream": scripted.url,
                "driver": "builtin",
                "tokens": tokens,
                "tokenizer": tokenizer,
                "retries": 0,  # What the gateway tries again by itself is another matter than what clients do.
                **model,
            }
        )
        gateway = create_gateway(ServeSettings(models=(settings,), **(serve or {})), store, pause_wait=pause_wait)
        async with AppServer(gateway) as server, aiohttp.ClientSession() as http:
            harness = Harness(scripted, gateway, store, server.url, http)
            try:
                yield harness
            finally:
                await harness.close()
    if isinstance(pool, str):
        store.close()


async def until(condition: Callable[[], bool], seconds: float = 100.0) -> None:
    """Wait until the condition holds; fails after that many seconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
