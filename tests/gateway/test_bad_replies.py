"""Replies that cannot be right: the caller is told that the engine failed, and the failed call is on record."""

from __future__ import annotations

from typing import Any

import pytest

from agentworld.errors import EngineError, InvalidRequestError
from agentworld.testing import ScriptedReply

from .harness import running

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
SOUND = {
    "index": 0,
    "message": {"role": "assistant", "content": "hi"},
    "finish_reason": "stop",
    "token_ids": [5],
    "logprobs": {"content": [{"token": "a", "logprob": -0.5}]},
}


def raw(choices: list[Any] | None = None, **body: Any) -> ScriptedReply:
    """A reply that is exactly this JSON."""
    whole = {
        "id": "x",
        "choices": [SOUND] if choices is None else choices,
        "usage": {"prompt_tokens": 2, "completion_tokens": 1},
        "prompt_token_ids": [1, 2],
        **body,
    }
    return ScriptedReply(status=200, error_body=whole)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ["chat/completions", "messages"])
@pytest.mark.parametrize(
    "reply",
    [
        raw([{**SOUND, "token_ids": [-1]}]),
        raw([{**SOUND, "token_ids": [2**33]}]),
        raw([{**SOUND, "token_ids": ["a"]}]),
        raw([{**SOUND, "token_ids": [True]}]),
        raw([{**SOUND, "finish_reason": 5}]),
        raw([{**SOUND, "message": "hello"}]),
        raw([{**SOUND, "logprobs": {"content": [None]}}]),
        raw([{**SOUND, "index": 7}]),
        raw([{**SOUND, "index": position} for position in range(3)]),
        raw(prompt_token_ids=["a"]),
        raw(policy_version=2**63),
        raw(usage={"prompt_tokens": "abc"}),
        ScriptedReply(status=200, error_body='{"choices": [{"message": {"content": "\\ud800"}}]}'),
        ScriptedReply(status=200, error_body='{"choices": [], "usage": {"prompt_tokens": Infinity}}'),
    ],
    ids=lambda reply: str(reply.error_body)[:90],
)
async def test_a_bad_reply_is_the_engines_fault_and_on_record(reply: ScriptedReply, route: str, stream: bool) -> None:
    async with running(reply) as gateway:
        body = {"messages": HELLO, "stream": stream, "max_tokens": 9}
        async with gateway.http.post(f"{gateway.url}/t/t1/v1/{route}", json=body) as response:
            answer = await response.text()
            # A piece of the stream may have gone out before the fault came; then an event says so.
            assert response.status == 502 or (stream and response.status == 200)
            assert ("engine_error" if route == "chat/completions" else "api_error") in answer
            assert "prompt_ids" not in answer
        assert gateway.steps("t1") == []
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert (exchange.error["code"], exchange.error["status"]) == ("engine_error", 502)


async def test_numbers_that_are_no_log_probabilities_quarantine_the_step() -> None:
    async with running(raw(logprobs_mode="raw_logits")) as gateway:
        assert (await gateway.say("hello", "/t/t1"))[0] == 200
        (step,) = gateway.steps("t1")
        assert step.logprob_space is None
        assert "'raw_logits'" in (step.excluded_reason or "")
        assert step.readiness == "excluded"


async def test_a_reply_that_cannot_be_made_a_step_is_on_record_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("ok") as gateway:

        def refuse(*_: Any) -> Any:
            raise InvalidRequestError("token ids must be integers", path="prompt_ids")

        monkeypatch.setattr("agentworld.capture.recorder.token_array", refuse)
        status, body, _ = await gateway.say("hello", "/t/t1")
        assert (status, body["error"]["code"], body["error"]["param"]) == (502, EngineError.code, None)
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert exchange.error["code"] == "engine_error"


async def test_schemas_that_nest_without_end_are_refused() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"properties": {"a": deep}}
    tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
    async with running("ok", tokens="token-in") as gateway:
        status, body, _ = await gateway.chat({"messages": HELLO, "tools": [tool]})
        assert (status, body["error"]["code"], body["error"]["param"]) == (400, "invalid_request", "tools")
        tool = {"name": "f", "input_schema": deep}
        for route in ("messages", "messages/count_tokens"):
            sent = {"messages": HELLO, "tools": [tool], "max_tokens": 5}
            async with gateway.http.post(f"{gateway.url}/v1/{route}", json=sent) as response:
                assert (response.status, (await response.json())["type"]) == (400, "error")
        assert gateway.engine.requests == []
