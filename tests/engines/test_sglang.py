"""SGLang: ids where it gives them, its spellings, and streams that repeat themselves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentworld.dialects import Delta, Request
from agentworld.dialects.chat import parse
from agentworld.engines.base import Engine, engine_space
from agentworld.engines.sglang import native_sampling
from agentworld.engines.sglang_wire import GenerateReader, read_chat
from agentworld.errors import EngineError, InvalidRequestError
from agentworld.records import Sampling, Usage
from tests.engines.fakes import Faults, Said, driver
from tests.engines.fakes.sglang import SglangFake


def request(**fields: Any) -> Request:
    return parse({"messages": [{"role": "user", "content": "hi"}], **fields})


async def chat(engine: Engine, asked: Request) -> list[Delta]:
    async with engine.chat(asked) as deltas:
        return [delta async for delta in deltas]


async def generate(engine: Engine, asked: Request, sampling: Sampling | None = None) -> list[Delta]:
    async with engine.generate([1, 50, 51, 3], asked, sampling or Sampling()) as deltas:
        return [delta async for delta in deltas]


async def test_a_stream_whose_ids_matter_is_asked_plain() -> None:
    async with SglangFake() as fake:
        engine = driver("sglang", fake.url)
        (delta,) = await chat(engine, request(stream=True))
        assert not engine.capabilities.stream_ids
        assert (delta.ids, delta.logprobs) == (fake.said.ids, fake.said.logprobs)
        assert (delta.prompt_ids, delta.stop_reason) == ([1, 50, 51, 3], 2)
        assert fake.asked[0].body["stream"] is False
        await engine.close()


async def test_a_stream_without_ids_comes_as_it_is_said() -> None:
    async with SglangFake() as fake:
        engine = driver("sglang", fake.url, tokens="none")
        deltas = await chat(engine, request(stream=True))
        assert [delta.text for delta in deltas if delta.text] == ["f", "ür ", "🙂"]
        assert all(delta.ids is None for delta in deltas)
        assert fake.asked[0].body["stream_options"] == {"include_usage": True}
        await engine.close()


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("count", [1, 2])
async def test_streams_of_generate(incremental: bool, count: int) -> None:
    async with SglangFake(incremental=incremental) as fake:
        engine = driver("sglang", fake.url)
        deltas = await generate(engine, request(stream=True, n=count), Sampling(n=count))
        for index in range(count):
            own = [delta for delta in deltas if delta.index == index]
            assert [token for delta in own for token in delta.ids or []] == fake.said.ids
            assert [value for delta in own for value in delta.logprobs or []] == fake.said.logprobs
            assert "".join(delta.text for delta in own) == fake.said.text
            assert [delta.finish_reason for delta in own if delta.finish_reason] == ["stop"]
        usages = [delta.usage for delta in deltas if delta.usage]
        assert usages[-1] == Usage(4, len(fake.said.ids) * count)
        assert fake.asked[0].body["sampling_params"]["max_new_tokens"] is None
        await engine.close()


async def test_several_plain_choices_are_a_list() -> None:
    async with SglangFake() as fake:
        engine = driver("sglang", fake.url)
        deltas = await generate(engine, request(n=3), Sampling(n=3))
        assert [delta.index for delta in deltas] == [0, 1, 2]
        assert deltas[-1].usage == Usage(4, 3 * len(fake.said.ids))
        await engine.close()


def test_equal_tokens_in_a_row_are_told_apart_by_the_count() -> None:
    def events(cumulative: bool) -> list[bytes]:
        out = []
        for count in range(1, 5):
            ids = [7] * count if cumulative else [7]
            triples = str([[-0.5, each, None] for each in ids]).replace("None", "null")
            ended = '{"type": "length"}' if count == 4 else "null"
            out.append(
                f'{{"text": "", "meta_info": {{"output_token_logprobs": {triples}, "completion_tokens": {count},'
                f' "prompt_tokens": 1, "finish_reason": {ended}}}}}'.encode()
            )
        return out

    for cumulative in (False, True):
        reader = GenerateReader(entries=False)
        found = [delta for data in events(cumulative) for delta in reader.read(data)]
        assert [each for delta in found for each in delta.ids or []] == [7, 7, 7, 7]
        assert all(delta.fault is None for delta in found)


def test_two_lists_of_ids_must_agree() -> None:
    def read(told: str) -> Delta:
        data = (
            '{"text": "a", "output_ids": %s, "meta_info": {"output_token_logprobs": [[-1.0, 5, null], [-1.0, 2, null]],'
            ' "completion_tokens": 2, "prompt_tokens": 1, "finish_reason": {"type": "stop"}}}'
        )
        (delta,) = GenerateReader(entries=False).read((data % told).encode())
        return delta

    assert read("[5, 2]").fault is None
    assert read("[5]").fault is None  # Without the stop token, as some releases send it.
    assert read("[5, 3]").fault == "the engine's two lists of sampled ids differ"
    assert read("[2]").fault is not None
    reader = GenerateReader(entries=False)
    for ids, count in (([1, 2, 3], 3), ([1], 1)):
        triples = str([[-0.5, each] for each in ids])
        (delta,) = reader.read(
            f'{{"meta_info": {{"output_token_logprobs": {triples}, "completion_tokens": {count}}}}}'.encode()
        )
    assert delta.fault == "the engine took sampled ids back"


def test_older_releases_have_pairs_and_no_output_ids() -> None:
    data = (
        b'[{"text": "hm", "meta_info": {"finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 3,'
        b' "completion_tokens": 2, "output_token_logprobs": [[-0.5, 11], [NaN, 12]], "weight_version": "17"}}]'
    )
    (delta,) = GenerateReader(entries=False).read(data)
    assert (delta.ids, delta.logprobs, delta.policy_version) == ([11, 12], [-0.5, None], 17)
    assert (delta.finish_reason, delta.usage) == ("length", Usage(3, 2))


def test_alternatives() -> None:
    data = (
        b'{"text": "a", "meta_info": {"output_token_logprobs": [[-0.5, 1, "a"]], "completion_tokens": 1,'
        b' "output_top_logprobs": [[[-0.5, 1, "a"], [-1.5, 2, "b"], [-9.0, 3, null]]]}}'
    )
    (delta,) = GenerateReader(entries=True).read(data)
    assert delta.entries == [{"token": "a", "logprob": -0.5, "tops": {"a": -0.5, "b": -1.5}}]


def test_texts_of_tokens_without_alternatives() -> None:
    reader = GenerateReader(entries=True)
    events = (
        b'{"text": "a", "meta_info": {"output_token_logprobs": [[-0.5, 1, "a"]], "completion_tokens": 1}}',
        b'{"text": "ab", "meta_info": {"output_token_logprobs": [[-0.5, 1, "a"], [NaN, 2, null]],'
        b' "completion_tokens": 2}}',
    )
    assert [delta.entries for event in events for delta in reader.read(event)] == [
        [{"token": "a", "logprob": -0.5, "tops": {}}],
        [{"token": "", "logprob": None, "tops": {}}],
    ]


@pytest.mark.parametrize(
    "meta",
    [
        {"output_token_logprobs": 5},
        {"output_token_logprobs": [5]},
        {"output_token_logprobs": [[-1.0]]},
        {"output_token_logprobs": [[-1.0, "a"]]},
        {"output_token_logprobs": [[-1.0, -4]]},
        {"output_token_logprobs": [["x", 4]]},
        {"output_token_logprobs": [[-1.0, 4]], "output_top_logprobs": 5},
        {"output_token_logprobs": [[-1.0, 4]], "output_top_logprobs": [[5]]},
        {"completion_tokens": -1, "output_token_logprobs": [[-1.0, 4]]},
        {"finish_reason": {"type": 5}},
        {"finish_reason": {"type": "stop", "matched": [1]}},
        {"finish_reason": 5},
        {"weight_version": 5},
        [],
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused(meta: Any) -> None:
    item = msgspec.json.encode({"text": "a", "meta_info": meta})
    with pytest.raises(EngineError, match="cannot be used"):
        GenerateReader(entries=True).read(item)


def test_an_error_in_the_stream_is_the_callers_where_it_says_so() -> None:
    reader = GenerateReader(entries=False)
    with pytest.raises(InvalidRequestError, match="too odd"):
        reader.read(b'{"error": {"message": "too odd", "type": "invalid_request_error", "code": 400}}')
    for data in (b"[5]", b'"text"'):
        with pytest.raises(EngineError):
            reader.read(data)


async def test_tool_calls_and_thinking_come_parsed() -> None:
    said = Said(reasoning="hm", calls=(("look", '{"at": 1}'),))
    async with SglangFake(said, version="12") as fake:
        engine = driver("sglang", fake.url)
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        asked = request(tools=[tool], tool_choice="required", chat_template_kwargs={"enable_thinking": True})
        (delta,) = await chat(engine, asked)
        assert (delta.reasoning, delta.finish_reason, delta.policy_version) == ("hm", "tool_calls", 12)
        assert [(call.name, call.arguments) for call in delta.tool_calls] == [("look", '{"at": 1}')]
        body = fake.asked[0].body
        assert (body["tool_choice"], body["tools"]) == ("required", [tool])
        assert body["chat_template_kwargs"] == {"enable_thinking": True}
        await engine.close()


def test_sampling_is_spelled_sglangs_way() -> None:
    sampling = Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=0,
        max_tokens=7,
        min_tokens=2,
        stop=("x",),
        stop_token_ids=(5,),
        seed=3,
        n=2,
        logit_bias={"4": 1.0},
        response_format={"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}},
    )
    out = native_sampling(sampling)
    assert (out["max_new_tokens"], out["min_new_tokens"], out["sampling_seed"], out["top_k"]) == (7, 2, 3, -1)
    assert (out["stop"], out["stop_token_ids"], out["n"], out["logit_bias"]) == (["x"], [5], 2, {"4": 1.0})
    assert out["json_schema"] == '{"type": "object"}'
    assert native_sampling(Sampling(response_format={"type": "json_object"}))["json_schema"] == '{"type": "object"}'
    with pytest.raises(InvalidRequestError):
        native_sampling(Sampling(response_format={"type": "json_schema"}))


def test_the_space_of_its_log_probabilities() -> None:
    engine = driver("sglang", "http://127.0.0.1:9")
    assert engine_space(engine, Sampling(temperature=0.7)) == "temperature"
    assert engine_space(engine, Sampling(temperature=0.0)) == "raw"
    raw = driver("sglang", "http://127.0.0.1:9", logprob_space="raw")
    assert engine_space(raw, Sampling(temperature=0.7)) == "raw"


async def test_ids_left_out_by_a_router_are_missing_not_made_up() -> None:
    async with SglangFake(faults=Faults(without_ids=True)) as fake:
        engine = driver("sglang", fake.url)
        (delta,) = await chat(engine, request())
        assert (delta.ids, delta.prompt_ids, delta.text) == (None, None, fake.said.text)
        await engine.close()


def test_a_chat_reply_with_ids_but_no_meta_info() -> None:
    data = b'{"choices": [{"message": {"content": "a"}, "response_token_ids": [4, 2], "finish_reason": "stop"}]}'
    (delta,) = read_chat(data, entries=False)
    assert (delta.ids, delta.logprobs) == ([4, 2], None)


@pytest.mark.parametrize(("said", "version"), [("7", 7), ("9" * 5000, None), (str(2**63), None), ("default", None)])
def test_versions_of_the_weights(said: str, version: int | None) -> None:
    body = {"choices": [{"message": {"content": "a"}}], "metadata": {"weight_version": said}}
    (delta,) = read_chat(msgspec.json.encode(body), entries=False)
    assert delta.policy_version == version


def test_ids_that_change_on_the_way_are_a_fault() -> None:
    reader = GenerateReader(entries=False)
    ended = b'"finish_reason": {"type": "stop"}, "completion_tokens": 2'
    for triples, more in ((b"[[-0.5, 1]]", b'"completion_tokens": 1'), (b"[[-0.5, 9], [-0.5, 2]]", ended)):
        (delta,) = reader.read(b'{"meta_info": {"output_token_logprobs": %s, %s}}' % (triples, more))
    assert delta.ids == [2]
    assert delta.fault == "the engine changed sampled ids"
