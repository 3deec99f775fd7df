"""One suite over every driver and the fake of its engine: the same reply, however it comes, and all that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentworld.capture.collect import Collector
from agentworld.dialects import Request
from agentworld.dialects.chat import parse
from agentworld.dialects.exchange import Choice
from agentworld.engines.base import Engine, EngineBusyError, EngineMissingError, EngineTimeoutError
from agentworld.errors import (
    AgentWorldError,
    ContextLengthError,
    EngineError,
    EngineUnreachableError,
    InvalidRequestError,
)
from agentworld.records import Sampling, Usage
from tests.engines.fakes import FakeEngine, Faults, Said, driver
from tests.engines.fakes.anthropic import AnthropicFake
from tests.engines.fakes.llamacpp import LlamaCppFake
from tests.engines.fakes.openai import OpenAIFake
from tests.engines.fakes.sglang import SglangFake


def vllm(said: Said | None = None, faults: Faults | None = None) -> OpenAIFake:
    return OpenAIFake(said, faults, ids=True)


FAKES: dict[str, Callable[..., FakeEngine]] = {
    "vllm": vllm,
    "builtin": vllm,
    "sglang": SglangFake,
    "llamacpp": LlamaCppFake,
    "openai": OpenAIFake,
    "anthropic": AnthropicFake,
}
WITH_IDS = ("vllm", "builtin", "sglang", "llamacpp")
CASES = [(name, "chat", stream) for name in FAKES for stream in (False, True)]
CASES += [(name, "generate", stream) for name in WITH_IDS for stream in (False, True)]
IDS = [f"{name}-{route}-{'stream' if stream else 'plain'}" for name, route, stream in CASES]
every = pytest.mark.parametrize(("name", "route", "stream"), CASES, ids=IDS)
streams_here = {("vllm", "chat"), ("vllm", "generate"), ("builtin", "chat"), ("builtin", "generate")} | {
    ("sglang", "generate"),
    ("openai", "chat"),
    ("anthropic", "chat"),
}
"""Where a streamed call is a stream of the engine's, rather than a plain one that is streamed here."""


def request(stream: bool, **fields: Any) -> Request:
    return parse({"messages": [{"role": "user", "content": "hi"}], "stream": stream, **fields})


async def collect(engine: Engine, route: str, asked: Request) -> Collector:
    collector = Collector()
    call = engine.chat(asked) if route == "chat" else engine.generate([1, 50, 51, 3], asked, Sampling())
    async with call as deltas:
        async for delta in deltas:
            collector.feed(delta)
    return collector


async def whole(engine: Engine, route: str, asked: Request) -> tuple[Choice, Collector]:
    collector = await collect(engine, route, asked)
    (choice,) = collector.choices(1)
    return choice, collector


async def failure(name: str, route: str, stream: bool, faults: Faults, timeout: float = 20.0) -> AgentWorldError:
    """The error of a call to a broken engine."""
    async with FAKES[name](faults=faults) as fake:
        engine = driver(name, fake.url, timeout)
        try:
            with pytest.raises(AgentWorldError) as caught:
                await whole(engine, route, request(stream))
        finally:
            await engine.close()
    assert "sk-secret" not in caught.value.one_line()
    return caught.value


def logprobs_of(name: str, said: Said) -> list[float | None]:
    """What the engine tells: llama.cpp has no number for a token that ends inside a character."""
    if name != "llamacpp":
        return list(said.logprobs)
    last = {id(piece[-1]) for _, piece in said.pieces()}
    return [token.logprob if id(token) in last else None for token in said.sampled]


@every
async def test_the_reply_is_whole(name: str, route: str, stream: bool) -> None:
    async with FAKES[name]() as fake:
        engine = driver(name, fake.url)
        choice, collector = await whole(engine, route, request(stream))
        said = fake.said
        assert choice.message.text == said.text
        assert choice.finish_reason == "stop"
        assert collector.usage == Usage(len(said.prompt_ids), len(said.ids))
        assert collector.faults == []
        if name in WITH_IDS:
            assert engine.capabilities.ids
            assert choice.ids == said.ids
            assert choice.logprobs == pytest.approx(logprobs_of(name, said))
            assert collector.prompt_ids in (list(said.prompt_ids), None)
            assert route == "generate" or collector.prompt_ids is not None
        else:
            assert (choice.ids, choice.logprobs, collector.prompt_ids) == (None, None, None)
        assert bool(fake.asked[-1].body["stream"]) == (stream and (name, route) in streams_here)
        await engine.close()


@every
async def test_a_reply_that_was_cut_says_so(name: str, route: str, stream: bool) -> None:
    async with FAKES[name](Said(finish="length")) as fake:
        engine = driver(name, fake.url)
        choice, _ = await whole(engine, route, request(stream))
        assert choice.finish_reason == "length"
        await engine.close()


@every
@pytest.mark.parametrize("size", [1, 7])
async def test_bytes_may_be_split_anywhere(name: str, route: str, stream: bool, size: int) -> None:
    async with FAKES[name](faults=Faults(split=size)) as fake:
        engine = driver(name, fake.url)
        choice, _ = await whole(engine, route, request(stream))
        assert choice.message.text == fake.said.text
        assert choice.ids in (fake.said.ids, None)
        await engine.close()


@every
async def test_an_engine_that_is_not_there(name: str, route: str, stream: bool) -> None:
    engine = driver(name, "http://127.0.0.1:9")
    with pytest.raises(EngineUnreachableError):
        await whole(engine, route, request(stream))
    await engine.close()


@every
async def test_a_connection_that_is_reset(name: str, route: str, stream: bool) -> None:
    error = await failure(name, route, stream, Faults(reset=True))
    assert type(error).__name__ == "EngineBrokeError"


@every
@pytest.mark.parametrize("cut", [0, 40, 250])
async def test_half_a_reply(name: str, route: str, stream: bool, cut: int) -> None:
    error = await failure(name, route, stream, Faults(cut=cut))
    assert isinstance(error, EngineError)


@every
async def test_an_engine_that_stalls(name: str, route: str, stream: bool) -> None:
    error = await failure(name, route, stream, Faults(stall=True), timeout=0.2)
    assert isinstance(error, EngineTimeoutError)


@every
async def test_garbage(name: str, route: str, stream: bool) -> None:
    error = await failure(name, route, stream, Faults(garbage=True))
    assert isinstance(error, EngineError)
    assert "not JSON" in error.message


STATUSES: list[tuple[int, Any, type[AgentWorldError]]] = [
    (400, {"error": {"message": "odd"}}, InvalidRequestError),
    (401, {"error": {"message": "who is sk-secret?"}}, EngineError),
    (404, {"error": {"message": "what?"}}, EngineMissingError),
    (413, {"error": {"message": "large"}}, InvalidRequestError),
    (429, {"error": {"message": "slow"}}, EngineBusyError),
    (500, {"error": {"message": "oops"}}, EngineError),
    (502, "<html>", EngineError),
    (503, {"error": {"message": "loading"}}, EngineUnreachableError),
]


@every
@pytest.mark.parametrize(("status", "body", "kind"), STATUSES, ids=[str(status) for status, _, _ in STATUSES])
async def test_statuses(
    name: str, route: str, stream: bool, status: int, body: Any, kind: type[AgentWorldError]
) -> None:
    error = await failure(name, route, stream, Faults(status=status, error=body))
    assert type(error) is kind


@every
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(name: str, route: str, stream: bool, status: int) -> None:
    async with FAKES[name](faults=Faults(status=status, error={})) as fake:
        engine = driver(name, fake.url)
        with pytest.raises(EngineError, match=rf"redirects \(HTTP status {status}\)"):
            await whole(engine, route, request(stream))
        assert len(fake.asked) == 1
        await engine.close()


@every
async def test_leaving_the_call_ends_it(name: str, route: str, stream: bool) -> None:
    """A driver that first has its prompt rendered waits there already."""
    parts = 2 if stream and (name, route) in streams_here else 0
    async with FAKES[name](faults=Faults(slow=parts)) as fake:
        engine = driver(name, fake.url)
        working = asyncio.ensure_future(whole(engine, route, request(stream)))
        async with asyncio.timeout(10):
            await fake.waiting.wait()
            working.cancel()
            await fake.left.wait()
        with pytest.raises(asyncio.CancelledError):
            await working
        await engine.close()


@pytest.mark.parametrize("name", list(FAKES))
async def test_what_the_caller_set_is_sent(name: str) -> None:
    """In each engine's own spelling; the neutral values of what was not set too, where every field is sent."""
    given = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 9, "stop": ["x"]}
    limit = {"llamacpp": "n_predict"}.get(name, "max_tokens")
    stop = {"anthropic": "stop_sequences"}.get(name, "stop")
    async with FAKES[name]() as fake:
        engine = driver(name, fake.url)
        await whole(engine, "chat", request(False, **given))
        body = fake.asked[-1].body
        assert (body["temperature"], body["top_p"], body[limit], body[stop]) == (0.5, 0.9, 9, ["x"])
        every_field = ("min_p", "presence_penalty", "frequency_penalty")
        assert [body.get(field) for field in every_field] == ([0.0] * 3 if engine.capabilities.pins else [None] * 3)
        await engine.close()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("vllm", {"error": {"message": "This model's maximum context length is 10 tokens.", "code": 400}}),
        (
            "sglang",
            {"object": "error", "message": "The input (9 tokens) is longer than the model's context length (8)."},
        ),
        (
            "llamacpp",
            {"error": {"code": 400, "message": "the request exceeds the available context size. try increasing it"}},
        ),
        ("openai", {"error": {"message": "too long", "code": "context_length_exceeded"}}),
        ("anthropic", AnthropicFake.error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")),
    ],
)
async def test_a_prompt_that_is_too_long(name: str, error: Any) -> None:
    found = await failure(name, "chat", False, Faults(status=400, error=error))
    assert isinstance(found, ContextLengthError)


@every
async def test_usage_that_is_missing(name: str, route: str, stream: bool) -> None:
    async with FAKES[name](faults=Faults(without_usage=True)) as fake:
        engine = driver(name, fake.url)
        choice, collector = await whole(engine, route, request(stream))
        assert collector.usage is None
        assert choice.message.text == fake.said.text
        assert choice.ids in (fake.said.ids, None)
        await engine.close()


TOKEN_CASES = [case for case in CASES if case[0] in WITH_IDS]
with_ids = pytest.mark.parametrize(
    ("name", "route", "stream"),
    TOKEN_CASES,
    ids=[label for label, case in zip(IDS, CASES, strict=True) if case in TOKEN_CASES],
)


@with_ids
async def test_log_probabilities_that_are_none(name: str, route: str, stream: bool) -> None:
    async with FAKES[name](faults=Faults(nan=True)) as fake:
        engine = driver(name, fake.url)
        choice, _ = await whole(engine, route, request(stream))
        assert choice.logprobs == [None] * len(fake.said.ids)
        assert choice.ids == fake.said.ids
        await engine.close()


@with_ids
@pytest.mark.parametrize("value", [float("inf"), 10**400, -(10**400)], ids=["infinite", "long", "long below"])
async def test_log_probabilities_that_nobody_means_are_a_fault(
    name: str, route: str, stream: bool, value: float
) -> None:
    async with FAKES[name](faults=Faults(logprob=value)) as fake:
        engine = driver(name, fake.url)
        choice, collector = await whole(engine, route, request(stream))
        assert choice.logprobs == [None] * len(fake.said.ids)
        assert collector.faults == ["the engine gave log-probabilities that are infinite or too long"]
        await engine.close()


@with_ids
async def test_log_probabilities_of_minus_infinity_are_none(name: str, route: str, stream: bool) -> None:
    async with FAKES[name](faults=Faults(logprob=float("-inf"))) as fake:
        engine = driver(name, fake.url)
        choice, collector = await whole(engine, route, request(stream))
        assert (choice.logprobs, collector.faults) == ([None] * len(fake.said.ids), [])
        await engine.close()


@with_ids
async def test_ids_that_are_none(name: str, route: str, stream: bool) -> None:
    error = await failure(name, route, stream, Faults(wrong_ids=True))
    assert "cannot be used" in error.message


@with_ids
async def test_ids_that_are_left_out(name: str, route: str, stream: bool) -> None:
    async with FAKES[name](faults=Faults(without_ids=True)) as fake:
        engine = driver(name, fake.url)
        choice, _ = await whole(engine, route, request(stream))
        assert choice.ids is None
        assert choice.message.text == fake.said.text
        await engine.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_ids_that_a_proxy_moved(stream: bool) -> None:
    async with OpenAIFake(ids=True, moved=True) as fake:
        engine = driver("vllm", fake.url)
        for route in ("chat", "generate"):
            choice, collector = await whole(engine, route, request(stream))
            assert (choice.ids, collector.prompt_ids) == (fake.said.ids, list(fake.said.prompt_ids))
        await engine.close()


@pytest.mark.parametrize("name", list(FAKES))
async def test_models(name: str) -> None:
    async with FAKES[name]() as fake:
        engine = driver(name, fake.url)
        assert "model" in [card.name for card in await engine.models()]
        await engine.close()
