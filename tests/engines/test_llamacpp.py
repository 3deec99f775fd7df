"""llama.cpp: prompts rendered by the engine, ids that are all there or not at all, samplers switched off."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.dialects import Delta, Request
from agentworld.dialects.chat import parse
from agentworld.engines.base import Engine
from agentworld.engines.llamacpp import SAMPLERS, native_sampling
from agentworld.engines.llamacpp_wire import CompletionReader, Entry, aligned, read_chat
from agentworld.errors import EngineError, InvalidRequestError
from agentworld.records import Sampling, Usage
from tests.engines.fakes import WORDS, Faults, Refusal, Said, Token, driver
from tests.engines.fakes.llamacpp import LlamaCppFake

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
PLAIN = Said(tokens=(Token(17, b"f", -0.25), Token(18, b"g", -0.75)))


def request(**fields: Any) -> Request:
    return parse({"messages": [{"role": "user", "content": "hi"}], **fields})


async def chat(engine: Engine, asked: Request) -> list[Delta]:
    async with engine.chat(asked) as deltas:
        return [delta async for delta in deltas]


@pytest.mark.parametrize("stream", [False, True])
async def test_all_ids_and_no_invented_numbers(stream: bool) -> None:
    async with LlamaCppFake() as fake:
        engine = driver("llamacpp", fake.url)
        (delta,) = await chat(engine, request(stream=stream, chat_template_kwargs={"a": 1}))
        assert (delta.ids, delta.prompt_ids) == (fake.said.ids, [1, 50, 51, 3])
        # Four tokens of six end inside a character, or begin one that another ends.
        assert delta.logprobs == [-0.25, None, -0.125, None, None, -0.5, -0.0625]
        assert (delta.text, delta.usage, delta.finish_reason) == (fake.said.text, Usage(4, 7), "stop")
        template, tokenize, completion = fake.asked
        assert [call.path for call in fake.asked] == ["/apply-template", "/tokenize", "/completion"]
        assert template.body["chat_template_kwargs"] == {"a": 1}
        assert tokenize.body == {"model": "model", "content": "<s>hi</s>", "add_special": True, "parse_special": True}
        assert (completion.body["prompt"], completion.body["return_tokens"]) == ([1, 50, 51, 3], True)
        await engine.close()


@pytest.mark.parametrize("rendered", ["<s>hi</s>", "<s>hi</s><think>\n"])
async def test_thinking_is_set_apart(rendered: str) -> None:
    opened = b"" if rendered.endswith("<think>\n") else b"<think>\n"
    said = Said(tokens=(Token(5, opened + b"hm\n", -1.0), Token(6, b"</think>", -1.0), Token(7, b"\n\nyes", -1.0)))
    async with LlamaCppFake(said, rendered=rendered) as fake:
        engine = driver("llamacpp", fake.url)
        (delta,) = await chat(engine, request())
        assert (delta.reasoning, delta.text, delta.ids) == ("hm", "yes", [5, 6, 7, 2])
        await engine.close()
    cut = Said(tokens=(Token(5, opened + b"hm, long", -1.0),), finish="length")
    async with LlamaCppFake(cut, rendered=rendered) as fake:
        engine = driver("llamacpp", fake.url)
        (delta,) = await chat(engine, request())
        assert (delta.reasoning, delta.text, delta.finish_reason) == ("hm, long", "", "length")
        await engine.close()


async def test_tool_calls_are_parsed_by_the_engine_and_keep_their_ids() -> None:
    said = Said(tokens=PLAIN.tokens, calls=(("look", '{"at":1}'),), reasoning="hm")
    async with LlamaCppFake(said) as fake:
        engine = driver("llamacpp", fake.url)
        (delta,) = await chat(engine, request(tools=[TOOL], tool_choice="required", stream=True))
        assert (delta.ids, delta.logprobs, delta.prompt_ids) == ([17, 18, 2], [-0.25, -0.75, -0.0625], [1, 50, 51, 3])
        assert [(call.name, call.arguments) for call in delta.tool_calls] == [("look", '{"at":1}')]
        assert (delta.reasoning, delta.finish_reason) == ("hm", "tool_calls")
        assert [call.path for call in fake.asked] == ["/apply-template", "/tokenize", "/v1/chat/completions"]
        assert fake.asked[2].body["stream"] is False
        # Both places must make the same prompt of it.
        for name in ("messages", "tools", "tool_choice"):
            assert fake.asked[0].body[name] == fake.asked[2].body[name]
        await engine.close()


async def test_some_ids_are_no_ids() -> None:
    async with LlamaCppFake(Said(calls=(("look", "{}"),))) as fake:
        engine = driver("llamacpp", fake.url)
        (delta,) = await chat(engine, request(tools=[TOOL]))
        assert (delta.ids, delta.logprobs) == (None, None)
        assert "ids_missing" in (delta.metadata or {})
        await engine.close()


async def test_text_alone_streams_as_it_comes() -> None:
    async with LlamaCppFake() as fake:
        engine = driver("llamacpp", fake.url, tokens="none")
        deltas = await chat(engine, request(stream=True))
        assert [delta.text for delta in deltas if delta.text] == ["f", "ür ", "🙂"]
        assert [call.path for call in fake.asked] == ["/v1/chat/completions"]
        await engine.close()


async def test_older_releases() -> None:
    async with LlamaCppFake(PLAIN, older=True) as fake:
        engine = driver("llamacpp", fake.url)
        async with engine.generate([1, 2], request(logprobs=True, top_logprobs=1), Sampling()) as deltas:
            (delta,) = [each async for each in deltas]
        assert delta.ids == [17, 18, 2]
        assert delta.logprobs == pytest.approx([-0.25, -0.75, -0.0625])
        assert (delta.logprobs_mode, delta.finish_reason) == ("processed_logprobs", "stop")
        assert fake.asked[0].body["prompt"] == [1, 2]
        await engine.close()


async def test_a_prompt_of_text_is_encoded_by_the_engine() -> None:
    async with LlamaCppFake() as fake:
        engine = driver("llamacpp", fake.url)
        asked = Request(dialect="completions", model="", messages=(), prompt="once")
        async with engine.complete(asked) as deltas:
            (delta,) = [each async for each in deltas]
        assert [call.path for call in fake.asked] == ["/tokenize", "/completion"]
        assert delta.prompt_ids == [1, 50, 51, 3]
        await engine.close()


async def test_several_choices() -> None:
    async with LlamaCppFake() as fake:
        engine = driver("llamacpp", fake.url)
        deltas = await chat(engine, request(n=2))
        assert [delta.index for delta in deltas] == [0, 1]
        assert [delta.usage for delta in deltas] == [Usage(4, 14), None]
        await engine.close()


def test_no_sampler_of_the_servers_own_is_left_on() -> None:
    body = native_sampling(Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0), Sampling())
    assert body["samplers"] == list(SAMPLERS)
    off = {"typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "dynatemp_range": 0.0, "mirostat": 0}
    assert {name: body[name] for name in off} == off
    assert (body["n_predict"], body["seed"], body["post_sampling_probs"]) == (-1, -1, False)
    full = Sampling(max_tokens=3, seed=4, stop=("x",), logit_bias={"7": -1.5}, repetition_penalty=1.1, n=2)
    body = native_sampling(full, full)
    assert (body["n_predict"], body["seed"], body["stop"], body["n"]) == (3, 4, ["x"], 2)
    assert (body["logit_bias"], body["repeat_penalty"], body["repeat_last_n"]) == ([[7, -1.5]], 1.1, -1)


@pytest.mark.parametrize("name", ["min_tokens", "stop_token_ids"])
async def test_what_the_server_lacks_is_refused(name: str) -> None:
    async with LlamaCppFake() as fake:
        engine = driver("llamacpp", fake.url)
        with pytest.raises(InvalidRequestError) as caught:
            await chat(engine, request(**{name: 2 if name == "min_tokens" else [2]}))
        assert caught.value.path == name
        # What token-in adds of its own is left to the model's file.
        async with engine.generate([1], request(), Sampling(stop_token_ids=(2,))) as deltas:
            assert [delta async for delta in deltas]
        await engine.close()


async def test_a_json_schema_reaches_both_routes() -> None:
    described = {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}}
    async with LlamaCppFake(PLAIN) as fake:
        engine = driver("llamacpp", fake.url)
        await chat(engine, request(response_format=described))
        assert fake.asked[-1].body["response_format"] == described
        sampling = Sampling(response_format=described)
        async with engine.generate([1], request(), sampling) as deltas:
            assert [delta async for delta in deltas]
        assert fake.asked[-1].body["json_schema"] == {"type": "object"}
        await engine.close()


async def test_a_server_of_one_model_has_it_under_any_name() -> None:
    async with LlamaCppFake() as fake:
        engine = driver("llamacpp", fake.url)
        (card,) = await engine.models()
        assert (card.name, card.context) == ("model", 2048)
        await engine.close()


@pytest.mark.parametrize(("status", "hidden"), [(404, True), (401, False), (429, False), (500, False), (503, False)])
async def test_only_a_route_that_is_not_there_tells_no_context(status: int, hidden: bool) -> None:
    class Faulty(LlamaCppFake):
        def answer(self, path: str, body: Any) -> Any:
            if path == "/props":
                raise Refusal(status, {"error": {"code": status, "message": "no", "type": "error"}})
            return super().answer(path, body)

    async with Faulty() as fake:
        engine = driver("llamacpp", fake.url)
        if hidden:
            (card,) = await engine.models()
            assert card.context is None
        else:
            with pytest.raises(EngineError):
                await engine.models()
        await engine.close()


def test_another_prompt_than_the_one_sent_is_a_fault() -> None:
    reader = CompletionReader([1, 2, 3], entries=False, tops=0, objects=False)
    (delta,) = reader.read(b'{"content": "a", "tokens": [4], "tokens_evaluated": 2, "tokens_predicted": 1}')
    assert delta.fault == "the engine took 2 tokens of a prompt of 3"
    body = b'{"choices": [{"message": {"content": "a"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}'
    (delta,) = read_chat(body, [1, 2, 3], entries=False, tops=0)
    assert delta.fault == "the engine took 9 tokens of a prompt of 3"


def test_a_stop_string_says_which() -> None:
    reader = CompletionReader([1], entries=False, tops=0, objects=False)
    (delta,) = reader.read(b'{"content": "a", "tokens": [4], "stop_type": "word", "stopping_word": "END"}')
    assert (delta.finish_reason, delta.stop_reason, delta.usage) == ("stop", "END", None)
    (delta,) = reader.read(b'{"content": "a", "tokens": [4]}')
    assert delta.finish_reason is None


@pytest.mark.parametrize(
    "item",
    [
        {"content": 5},
        {"tokens": ["a"]},
        {"tokens": [-1]},
        {"tokens": [4], "completion_probabilities": 5},
        {"tokens": [4], "completion_probabilities": [{"id": "a"}]},
        {"tokens": [4], "completion_probabilities": [{"id": 4, "logprob": "x"}]},
        {"tokens": [4], "completion_probabilities": [{"id": 4, "logprob": -1.0, "top_logprobs": 5}]},
        {"tokens_evaluated": -1},
        {"index": -1},
        {"stop_type": 5},
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused(item: Any) -> None:
    with pytest.raises(EngineError, match="cannot be used"):
        CompletionReader([1], entries=True, tops=1, objects=True).read(msgspec.json.encode(item))


def entries(ids: list[int]) -> list[Entry]:
    return [Entry({"id": token, "token": "", "logprob": -float(place)}) for place, token in enumerate(ids)]


@given(st.lists(st.integers(0, 3), max_size=12), st.data())
def test_a_number_never_goes_to_another_token(ids: list[int], data: st.DataObject) -> None:
    kept = sorted(data.draw(st.sets(st.integers(0, len(ids) - 1)))) if ids else []
    told = entries([ids[place] for place in kept])
    found = aligned(ids, told)
    for place, entry in enumerate(found):
        if entry is not None:
            assert kept.index(place) == told.index(entry)
    if len(kept) == len(ids):
        assert found == told


def test_numbers_of_other_ids_are_dropped() -> None:
    assert aligned([1, 2], entries([3])) == [None, None]
    assert aligned([5, 5], entries([5])) == [None, None]  # It could be of either.
    first, second = aligned([4, 5], entries([5]))
    assert first is None
    assert second is not None


async def test_words_only() -> None:
    async with LlamaCppFake(Said(tokens=WORDS), faults=Faults(nan=True)) as fake:
        engine = driver("llamacpp", fake.url)
        (delta,) = await chat(engine, request(logprobs=True, top_logprobs=1))
        assert delta.logprobs == [None] * 4
        assert delta.entries is not None
        assert delta.entries[0]["logprob"] == -9999.0
        await engine.close()
