"""Replies that cannot be right: the caller is told that the engine failed, and the failed call is on record."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from agentworld.errors import EngineError, InvalidRequestError
from agentworld.pool.memory import MemoryPool
from agentworld.pool.results import AppendResult
from agentworld.records import Exchange
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
        raw(usage={"prompt_tokens": 2**31}),
        raw(policy_run="r" * 300),
        raw(policy_run="a\0b"),
        raw([{**SOUND, "finish_reason": "f" * 300}]),
        raw([{**SOUND, "finish_reason": "a\0b"}]),
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


@pytest.mark.parametrize(("value", "is_fault"), [(5.0, True), (1e300, True), (1e-5, False), (0.0, False)])
async def test_probabilities_over_one_quarantine_the_step(value: float, is_fault: bool) -> None:
    wrong = {**SOUND, "logprobs": {"content": [{"token": "a", "logprob": value}]}}
    async with running(raw([wrong])) as gateway:
        assert (await gateway.say("hello", "/t/t1"))[0] == 200
        (step,) = gateway.steps("t1")
        assert ("log-probabilities over 0" in (step.excluded_reason or "")) == is_fault


class Refusing(MemoryPool):
    """A pool that cannot take replies."""

    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        if exchange.choices:
            raise InvalidRequestError("a name of 300 characters", path="policy.run")
        return super().submit_exchange(exchange)


class Rejecting(MemoryPool):
    """A pool that rejects steps."""

    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        if not exchange.choices:
            return super().submit_exchange(exchange)
        done: Future[list[AppendResult]] = Future()
        done.set_result([AppendResult(step.step_id, "rejected", reason="it is odd") for step in exchange.choices])
        return done


@pytest.mark.parametrize(("kind", "code"), [(Refusing, "engine_error"), (Rejecting, "pool_error")])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_the_pool_refuses_is_a_failed_call_on_record(
    kind: type[MemoryPool], code: str, stream: bool
) -> None:
    async with running("ok", pool=kind()) as gateway:
        body = {"messages": HELLO, "stream": stream}
        async with gateway.http.post(f"{gateway.url}/t/t1/v1/chat/completions", json=body) as response:
            answer = await response.text()
        assert response.status >= 500 or stream
        assert code in answer
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert (exchange.error or {}).get("code") == code
        assert gateway.steps("t1") == []
        assert gateway.gateway.state.in_flight == 0


async def test_a_reply_that_cannot_be_made_a_step_is_on_record_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("ok") as gateway:

        def refuse(**_: Any) -> Any:
            raise InvalidRequestError("token ids must be integers", path="prompt_ids")

        monkeypatch.setattr("agentworld.capture.recorder.Step", refuse)
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
