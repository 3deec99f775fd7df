"""What is left of a call in memory once it was answered."""

from __future__ import annotations

import gc

import pytest

from agentworld.gateway.answer import Answer

from .harness import running, until


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_a_call_leaves_nothing_to_the_garbage_collector(tokens: str) -> None:
    """Cycles keep each call's ids and texts until a collection walks them all: a tenth of what a call takes."""
    async with running("ok", tokens=tokens) as gateway:
        gc.disable()
        gc.freeze()  # Only what comes from here on is looked through.
        try:
            for stream in (False, True):
                body = {"messages": [{"role": "user", "content": "hello"}], "stream": stream}
                async with gateway.http.post(f"{gateway.url}/t/t1/v1/chat/completions", json=body) as response:
                    assert response.status == 200
                    await response.read()
                await until(lambda: not [each for each in gc.get_objects() if type(each) is Answer], 60.0)
        finally:
            gc.enable()
        assert len(gateway.steps("t1")) == 2
