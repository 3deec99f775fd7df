"""Generated requests through every dialect: nothing of ours breaks, hangs, or goes unrecorded; memory stays flat."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentworld.testing.scripted_engine import ScriptedRequest

from .generated import Call, generate
from .harness import Harness, running

AT_ONCE = 16
CALL_SECONDS = 60.0
REPLIES = (
    "ok",
    "<think>\nhm\n</think>\n\nfür 数",
    '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>',
    '<tool_call>\n{"name": "look", "arguments": {"a',
    "",
)


def script(request: ScriptedRequest) -> str:
    return REPLIES[request.call % len(REPLIES)]


async def send(gateway: Harness, number: int, call: Call) -> int:
    """The status; a reply that came must be whole and on record, an error must be one of the API."""
    trajectory = f"g{number}"
    headers = {"content-type": "application/json", "x-agentworld-trajectory": trajectory}
    async with (
        asyncio.timeout(CALL_SECONDS),
        gateway.http.post(gateway.url + call.path, data=call.data, headers=headers) as response,
    ):
        data = await response.read()
        status = response.status
        admitted = "x-agentworld-trajectory" in response.headers
        streamed = response.content_type == "text/event-stream"
    seen = (call, status, data[:500])
    assert status == 200 or 400 <= status < 500, seen
    if status != 200:
        body = json.loads(data)
        assert body["error"]["message"], seen
        if admitted:
            assert await asyncio.to_thread(gateway.pool.list_exchanges, trajectory), seen
        return status
    if streamed:
        assert b'"error":{' not in data, seen
        assert data.endswith(b"\n\n"), seen
        assert any(
            end in data for end in (b"[DONE]", b"message_stop", b"response.completed", b"response.incomplete")
        ), seen
    else:
        json.loads(data)
    steps = await asyncio.to_thread(gateway.pool.list_steps, trajectory_id=trajectory)
    assert steps.items, seen
    return status


async def storm(gateway: Harness, count: int, seed: int, first: int = 0) -> Counter[tuple[str, str, int]]:
    """So many generated requests, some at once; how each kind ended."""
    rng = random.Random(seed)
    numbers = iter(range(first, first + count))
    ended: Counter[tuple[str, str, int]] = Counter()

    async def work() -> None:
        for number in numbers:
            call = generate(rng)
            ended[call.path, call.kind, await send(gateway, number, call) // 100] += 1

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return ended


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_generated_requests(tokens: str) -> None:
    async with running(script, tokens=tokens) as gateway:
        ended = await storm(gateway, 1000, seed=7)
    assert sum(ended.values()) == 1000
    for path in {path for path, _, _ in ended}:
        # The generator makes what is taken and what is not, or this would test nothing.
        assert ended[path, "valid", 2] > 20, path
        assert ended[path, "mutated", 4] > 20, path
        assert ended[path, "truncated", 2] == 0, path


def _megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.scale
@pytest.mark.timeout(5400)
async def test_very_many_generated_requests(tmp_path: Path) -> None:
    """200,000 requests; the process that holds gateway, engine and client stays as large as it was after a tenth."""
    sizes: list[float] = []
    more: dict[str, Any] = {"pool": f"sqlite:///{tmp_path / 'pool.db'}"}
    async with running(script, tokens="token-in", **more) as gateway:
        for part in range(20):
            ended = await storm(gateway, 10_000, seed=part, first=part * 10_000)
            assert sum(ended.values()) == 10_000
            gateway.engine.requests.clear()
            gc.collect()
            sizes.append(_megabytes())
    assert sizes[-1] < sizes[1] * 1.25 + 50, sizes
