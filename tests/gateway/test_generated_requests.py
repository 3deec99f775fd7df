"""Generated requests through every dialect: nothing of ours breaks, hangs, or goes unrecorded."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.engines.fakes import FakeEngine, Said, Token
from tests.engines.fakes.anthropic import AnthropicFake
from tests.engines.fakes.sglang import SglangFake

from .generated import Call
from .harness import running
from .storm import Answer, Storm, script
from .test_drivers import gateway as gateway_to

PLAIN = Said(tokens=(Token(ord("o"), b"o", -0.25), Token(ord("k"), b"k", -0.5)))


def storm_of(http: aiohttp.ClientSession, running: Any) -> Storm:
    """Requests to that gateway, each of which must be on record when its reply ends."""

    async def is_on_record(call: Call, answer: Answer) -> None:
        if answer.trajectory is not None:
            read = running.pool.list_steps if answer.status == 200 else running.pool.list_exchanges
            found = await asyncio.to_thread(read, trajectory_id=answer.trajectory)
            assert found if isinstance(found, list) else found.items, (call, answer)
        else:
            assert answer.status != 200, (call, answer)

    return Storm(http, running.url, is_on_record)


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "driver"), [("engine", "builtin"), ("token-in", "builtin"), ("none", "openai")])
async def test_generated_requests(tokens: str, driver: str) -> None:
    async with running(script, tokens=tokens, driver=driver) as gateway:
        storm = storm_of(gateway.http, gateway)
        await storm.run(range(300))
        assert gateway.pool.stats().exchanges == storm.recorded
    ended = storm.ended
    for path in {path for path, _, _ in ended}:
        # The generator makes what is taken and what is not, or this would test nothing.
        assert ended[path, "valid", 2] > 10, path
        assert ended[path, "mutated", 4] > 15, path
        assert ended[path, "truncated", 2] == 0, path
        assert ended[path, "again", 2] > 1, path
        assert ended[path, "further", 2] > 5 or path == "/v1/completions", path


@pytest.mark.parametrize(
    ("driver", "fake", "more"), [("anthropic", AnthropicFake, {}), ("sglang", SglangFake, {"tokenizer": "byte"})]
)
async def test_generated_requests_to_engines_of_other_apis(
    driver: str, fake: type[FakeEngine], more: dict[str, Any]
) -> None:
    async with (
        fake(PLAIN) as engine,
        gateway_to(driver, engine, **more) as gateway,
        aiohttp.ClientSession() as http,
    ):
        storm = storm_of(http, gateway)
        await storm.run(range(150))
        assert gateway.pool.stats().exchanges == storm.recorded > 50
        assert sum(number for (_, _, hundreds), number in storm.ended.items() if hundreds == 2) > 50
