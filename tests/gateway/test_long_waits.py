"""Silent streams are kept open, long prompts leave the event loop free."""

from __future__ import annotations

from typing import Any

import pytest

from agentworld.gateway import answer, token_in
from agentworld.testing import ScriptedReply

from .harness import running

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


async def test_a_silent_stream_is_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "PING_SECONDS", 0.02)
    async with running(ScriptedReply(text="ab", first_token_delay=0.3, token_delay=0.2)) as gateway:
        body = {"messages": HELLO, "stream": True}
        async with gateway.http.post(gateway.url + "/v1/chat/completions", json=body) as response:
            data = await response.read()
        assert data.startswith(b": ping\n")
        # One line end after it: a blank line would be an empty event to some clients.
        assert b": ping\n\n" not in data
        assert data.endswith(b"data: [DONE]\n\n")
        stream = await gateway.client().chat.completions.create(model="m", messages=HELLO, stream=True)
        text = ""
        async for event in stream:
            text += event.choices[0].delta.content or ""
        assert text == "ab"


async def test_an_error_after_a_ping_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "PING_SECONDS", 0.02)
    async with running(ScriptedReply(text="x", first_token_delay=30.0), serve={"upstream_timeout": 1.0}) as gateway:
        body = {"messages": HELLO, "stream": True}
        async with gateway.http.post(gateway.url + "/t/t1/v1/chat/completions", json=body) as response:
            data = await response.read()
        assert b'"code":"engine_timeout"' in data
        assert b"[DONE]" not in data
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert exchange.error["code"] == "engine_timeout"


async def test_a_long_prompt_is_rendered_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    render = token_in.TokenIn._render

    def watched(*arguments: Any) -> None:
        import threading

        threads.append(threading.current_thread().name)
        render(*arguments)

    monkeypatch.setattr(token_in.TokenIn, "_render", watched)
    async with running("ok", tokens="token-in") as gateway:
        await gateway.say("short", "/t/t1")
        await gateway.say("long " * 5000, "/t/t2")
        assert threads[0] == "MainThread"
        assert threads[1] != "MainThread"
        (step,) = gateway.steps("t2")
        assert len(step.prompt_ids or []) > 25_000
