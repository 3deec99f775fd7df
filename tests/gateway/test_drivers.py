"""Whole calls through the gateway to the fake of each engine: what the caller gets, and what is on record."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import pytest
import structlog

from agentworld.config import ChannelSettings, ModelSettings, SamplingOverrides, ServeSettings
from agentworld.gateway import create_gateway
from agentworld.pool import Pool, open_store
from agentworld.records import Step, Usage
from agentworld.testing.app_server import AppServer
from tests.engines.fakes import FakeEngine, Faults, Refusal, Said, Token
from tests.engines.fakes.anthropic import SIGNATURE, AnthropicFake
from tests.engines.fakes.llamacpp import LlamaCppFake
from tests.engines.fakes.openai import OpenAIFake
from tests.engines.fakes.sglang import SglangFake

PLAIN = Said(tokens=(Token(ord("o"), b"o", -0.25), Token(ord("k"), b"k", -0.5)))
TOOL = {"name": "look", "input_schema": {"type": "object"}}


class Running:
    def __init__(self, url: str, pool: Pool, gateway: Any) -> None:
        self.url = url
        self.pool = pool
        self.gateway = gateway

    def step(self) -> Step:
        (step,) = self.steps()
        return step

    def steps(self) -> list[Step]:
        return self.pool.list_steps(include=("tokens", "messages", "logprobs"), limit=50).items

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as http, http.post(self.url + path, json=body, headers=headers) as response:
            return response.status, await response.text()


@asynccontextmanager
async def gateway(
    driver: str, fake: FakeEngine, serve: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Running]:
    fields = {"name": "model", "upstream": fake.url, "driver": driver, "api_key": "sk-secret", "retries": 0, **settings}
    pool = open_store("memory://")
    app = create_gateway(ServeSettings(models=(ModelSettings(**fields),), **(serve or {})), pool)
    try:
        async with AppServer(app) as server:
            yield Running(server.url, pool, app)
    finally:
        pool.close()


def chat(stream: bool = False, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}], "stream": stream, **fields}


def text_of(answer: str, stream: bool) -> str:
    if not stream:
        return str(json.loads(answer)["choices"][0]["message"]["content"])
    chunks = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


EXACT = {"vllm": lambda: OpenAIFake(ids=True), "sglang": SglangFake, "llamacpp": LlamaCppFake}
SPACES = {"vllm": "raw", "sglang": "temperature", "llamacpp": "raw"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("driver", list(EXACT))
async def test_exact_engines(driver: str, stream: bool) -> None:
    async with EXACT[driver]() as fake, gateway(driver, fake) as running:
        status, answer = await running.post("/v1/chat/completions", chat(stream))
        assert (status, text_of(answer, stream)) == (200, fake.said.text)
        step = running.step()
        assert (step.token_source, step.excluded_reason) == ("engine", None)
        assert (step.prompt_ids, step.response_ids) == (list(fake.said.prompt_ids), fake.said.ids)
        assert step.response_logprobs is not None
        assert len(step.response_logprobs) == len(fake.said.ids)
        assert (step.logprob_space, step.usage) == (SPACES[driver], Usage(4, 7))
        assert step.sampling is not None
        assert (step.sampling.temperature, step.sampling.top_k, step.sampling.top_p) == (1.0, 0, 1.0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("driver", ["sglang", "llamacpp"])
async def test_token_in(driver: str, stream: bool) -> None:
    fake_of = {"sglang": SglangFake, "llamacpp": LlamaCppFake}
    async with fake_of[driver](PLAIN) as fake, gateway(driver, fake, tokenizer="byte") as running:
        status, answer = await running.post("/v1/chat/completions", chat(stream))
        assert (status, text_of(answer, stream)) == (200, "ok\x02")
        step = running.step()
        assert (step.token_source, step.excluded_reason) == ("token-in", None)
        body = fake.asked[-1].body
        assert step.prompt_ids == body["input_ids" if driver == "sglang" else "prompt"]
        assert (step.response_ids, step.response_logprobs) == (PLAIN.ids, PLAIN.logprobs)


@pytest.mark.parametrize("space", ["processed", "temperature", "raw"])
async def test_the_space_that_the_settings_name(space: str) -> None:
    async with OpenAIFake(ids=True) as fake, gateway("vllm", fake, logprob_space=space) as running:
        await running.post("/v1/chat/completions", chat())
        assert running.step().logprob_space == space


async def test_a_contradiction_of_the_engine_is_quarantined() -> None:
    class Contradictory(SglangFake):
        def _item(self, length: int) -> dict[str, Any]:
            item = super()._item(length)
            return item | {"output_ids": [token + 1 for token in item["output_ids"]]}

    async with Contradictory(PLAIN) as fake, gateway("sglang", fake, tokenizer="byte") as running:
        status, _ = await running.post("/v1/chat/completions", chat())
        assert status == 200
        assert running.step().excluded_reason == "quarantined: the engine's two lists of sampled ids differ"


@pytest.mark.parametrize("tokens", ["auto", "engine"])
async def test_the_first_reply_without_ids_raises_an_alarm(tokens: str) -> None:
    async with SglangFake(faults=Faults(without_ids=True)) as fake, gateway("sglang", fake, tokens=tokens) as running:
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                await running.post("/v1/chat/completions", chat())
        assert [entry["model"] for entry in logs if entry["event"] == "ids_missing"] == ["model"]
        model = running.gateway.models.find("model")
        assert model.mode == ("none" if tokens == "auto" else "engine")
        quarantined = "quarantined: the engine gave no token ids"
        assert [step.excluded_reason for step in running.steps()] == [None if tokens == "auto" else quarantined] * 2


async def test_one_reply_with_some_ids_does_not_turn_ids_off() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    async with LlamaCppFake() as fake, gateway("llamacpp", fake) as running:
        await running.post("/v1/chat/completions", chat(tools=[tool]))
        await running.post("/v1/chat/completions", chat())
        assert sorted(step.token_source for step in running.steps()) == ["engine", "none"]
        (partial,) = (step for step in running.steps() if step.token_source == "none")
        assert partial.response_logprobs is None
        assert "ids_missing" in partial.metadata


MESSAGES: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "x-anthropic-billing-header: v=1; cch=ab12;\n"}, {"type": "text", "text": "S"}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}],
    "tools": [TOOL],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_behind_its_own_api(stream: bool) -> None:
    said = Said(reasoning="well, so", calls=(("look", '{"at": "x"}'),))
    async with AnthropicFake(said, redacted="eHg=") as fake, gateway("anthropic", fake) as running:
        client = anthropic.AsyncAnthropic(base_url=running.url, api_key="theirs", max_retries=0)
        more = {"extra_headers": {"anthropic-beta": "interleaved-thinking-2025-05-14"}}
        if stream:
            async with client.messages.stream(**MESSAGES, **more) as events:
                reply = await events.get_final_message()
        else:
            reply = await client.messages.create(**MESSAGES, **more)
        await client.close()
        blocks = [block.to_dict() for block in reply.content]
        assert blocks == fake.blocks()
        assert blocks[0]["signature"] == SIGNATURE
        assert (reply.stop_reason, reply.model) == ("tool_use", "claude")
        assert (reply.usage.cache_read_input_tokens, reply.usage.input_tokens) == (1, 2)
        (sent,) = fake.asked
        body = {**MESSAGES, "model": "model"}
        assert sent.body == (body | {"stream": True} if stream else body)
        headers = {name.lower(): value for name, value in sent.headers.items()}
        assert (headers["x-api-key"], headers["anthropic-beta"]) == ("sk-secret", "interleaved-thinking-2025-05-14")
        step = running.step()
        assert (step.token_source, step.response_ids, step.excluded_reason) == ("none", None, None)
        assert step.response_message is not None
        assert (step.response_message.reasoning, step.response_message.text) == ("well, so", said.text)
        assert step.prompt_messages is not None
        assert step.prompt_messages[0].text == "S"  # The nonce is no part of what the conversation is known by.
        assert step.usage == Usage(4, len(said.sampled))
        assert step.metadata["upstream_usage"]["cache_creation_input_tokens"] == 1


async def test_anthropic_counts_tokens() -> None:
    async with AnthropicFake() as fake, gateway("anthropic", fake) as running:
        body = {name: MESSAGES[name] for name in ("model", "messages", "system", "tools")}
        status, answer = await running.post("/v1/messages/count_tokens", body)
        assert (status, json.loads(answer)) == (200, {"input_tokens": 4})
        assert fake.asked[0].body == {**body, "model": "model"}


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_behind_chat_completions(stream: bool) -> None:
    async with AnthropicFake() as fake, gateway("anthropic", fake) as running:
        status, answer = await running.post("/v1/chat/completions", chat(stream))
        assert (status, text_of(answer, stream)) == (200, fake.said.text)
        step = running.step()
        assert step.metadata["max_tokens_sent"] == fake.asked[0].body["max_tokens"]
        assert step.sampling is not None
        assert step.sampling.temperature is None  # Only what was sent is on record.


async def test_what_fails_at_anthropic_fails_in_the_callers_shape() -> None:
    faults = Faults(status=529, error=AnthropicFake.error("overloaded_error", "Overloaded"))
    async with AnthropicFake(faults=faults) as fake, gateway("anthropic", fake) as running:
        status, answer = await running.post("/v1/messages", MESSAGES)
        assert (status, json.loads(answer)["error"]["type"]) == (503, "overloaded_error")
        assert running.steps() == []


async def test_openai_gets_the_callers_own_body() -> None:
    async with OpenAIFake() as fake, gateway("openai", fake) as running:
        body = chat(service_tier="flex", max_completion_tokens=9)
        status, _ = await running.post("/v1/chat/completions", body)
        assert (status, fake.asked[0].body) == (200, {**body, "model": "model"})
        assert running.step().token_source == "none"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("driver", ["vllm", "sglang", "llamacpp"])
async def test_text_completions(driver: str, stream: bool) -> None:
    async with EXACT[driver]() as fake, gateway(driver, fake) as running:
        status, _ = await running.post("/v1/completions", {"prompt": "once", "stream": stream})
        assert status == 200
        step = running.step()
        assert (step.token_source, step.excluded_reason) == ("engine", None)
        assert (step.prompt_ids, step.response_ids) == (list(fake.said.prompt_ids), fake.said.ids)


async def test_an_engine_without_text_completions_says_so() -> None:
    async with AnthropicFake() as fake, gateway("anthropic", fake) as running:
        status, answer = await running.post("/v1/completions", {"prompt": "once"})
        assert (status, json.loads(answer)["error"]["param"]) == (400, "prompt")
        assert fake.asked == []


CLAUDE: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 20_000,
    "thinking": {"type": "enabled", "budget_tokens": 4000},
    "output_config": {"effort": "high"},
    "metadata": {"user_id": "u"},
}


@pytest.mark.parametrize("fixed", [{"top_k": 5}, {"temperature": 0.25, "max_tokens": 7}, {"min_p": 0.0}], ids=str)
async def test_what_a_channel_fixes_leaves_the_callers_body_otherwise_alone(fixed: dict[str, Any]) -> None:
    serve = {"channels": {"train": ChannelSettings(sampling=SamplingOverrides(**fixed))}}
    async with AnthropicFake(PLAIN) as fake, gateway("anthropic", fake, serve) as running:
        status, answer = await running.post("/v1/messages", CLAUDE)
        assert status == 200, answer
        known = {name: value for name, value in fixed.items() if name != "min_p"}
        assert fake.asked[-1].body == {**CLAUDE, "model": "model", **known}
        sampling = running.step().sampling
        assert {name: getattr(sampling, name) for name in fixed} == fixed


async def test_what_a_channel_fixes_and_the_api_lacks_is_refused() -> None:
    serve = {"channels": {"train": ChannelSettings(sampling=SamplingOverrides(seed=3))}}
    async with AnthropicFake(PLAIN) as fake, gateway("anthropic", fake, serve) as running:
        status, answer = await running.post("/v1/messages", CLAUDE)
        assert (status, json.loads(answer)["error"]["param"]) == (400, "seed")
        assert fake.asked == []


class Narrow(AnthropicFake):
    """A service whose context leaves so many tokens for the reply."""

    room = 9000

    def answer(self, path: str, body: Any) -> Any:
        if path == "/v1/messages" and body["max_tokens"] > self.room:
            words = f"input length and `max_tokens` exceed context limit: 9 + {body['max_tokens']} > {self.room}"
            raise Refusal(400, self.error("invalid_request_error", words))
        return super().answer(path, body)


@pytest.mark.parametrize(("wanted", "sent"), [(20_000, 8192), (10_000, 5000)])
async def test_a_limit_over_the_services_context_is_lowered_in_the_callers_body(wanted: int, sent: int) -> None:
    async with Narrow(PLAIN) as fake, gateway("anthropic", fake) as running:
        status, answer = await running.post("/v1/messages", {**CLAUDE, "max_tokens": wanted})
        assert status == 200, answer
        assert [asked.body["max_tokens"] for asked in fake.asked] == [wanted, sent]
        step = running.step()
        assert (step.metadata["max_tokens_asked"], step.metadata["max_tokens_sent"]) == (wanted, sent)


async def test_a_limit_that_is_lowered_once_in_vain_is_the_callers_to_lower() -> None:
    async with Narrow(PLAIN) as fake, gateway("anthropic", fake) as running:
        fake.room = 100
        status, answer = await running.post("/v1/messages", CLAUDE)
        assert (status, json.loads(answer)["error"]["code"]) == (400, "context_length_exceeded")
        assert [asked.body["max_tokens"] for asked in fake.asked] == [20_000, 8192]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("driver", list(EXACT))
async def test_infinite_log_probabilities_quarantine_the_step(driver: str, stream: bool) -> None:
    async with EXACT[driver]() as fake, gateway(driver, fake) as running:
        fake.faults = Faults(logprob=float("inf"))
        status, answer = await running.post("/v1/chat/completions", chat(stream))
        assert (status, text_of(answer, stream)) == (200, fake.said.text)
        step = running.step()
        assert step.excluded_reason == "quarantined: the engine gave log-probabilities that are infinite or too long"
        assert set(step.response_logprobs or ()) == {None}
