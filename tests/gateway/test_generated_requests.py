"""Generated requests through every dialect: nothing of ours breaks, hangs, or goes unrecorded."""

from __future__ import annotations

import asyncio

import pytest

from .generated import Call
from .harness import running
from .storm import Answer, Storm, script


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_generated_requests(tokens: str) -> None:
    async with running(script, tokens=tokens) as gateway:

        async def is_on_record(call: Call, answer: Answer) -> None:
            """At once: a reply ends after its step is stored."""
            if answer.trajectory is not None:
                read = gateway.pool.list_steps if answer.status == 200 else gateway.pool.list_exchanges
                found = await asyncio.to_thread(read, trajectory_id=answer.trajectory)
                assert found if isinstance(found, list) else found.items, (call, answer)
            else:
                assert answer.status != 200, (call, answer)

        storm = Storm(gateway.http, gateway.url, is_on_record)
        await storm.run(range(800))
        assert gateway.pool.stats().exchanges == storm.recorded
    ended = storm.ended
    for path in {path for path, _, _ in ended}:
        # The generator makes what is taken and what is not, or this would test nothing.
        assert ended[path, "valid", 2] > 20, path
        assert ended[path, "mutated", 4] > 20, path
        assert ended[path, "truncated", 2] == 0, path
        assert ended[path, "again", 2] > 5, path
        assert ended[path, "further", 2] > 20 or path == "/v1/completions", path
