"""Anthropic's API: what goes to it, by its own dialect and by others, and what comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentworld.dialects import Delta, Request, chat, messages
from agentworld.engines.anthropic_reply import MessageReader
from agentworld.engines.anthropic_request import DEFAULT_MAX_TOKENS, translated
from agentworld.engines.base import Engine
from agentworld.errors import (
    ContextLengthError,
    EngineError,
    EngineUnreachableError,
    InvalidRequestError,
)
from agentworld.records import MediaPart, Message, TextPart, Usage
from tests.engines.fakes import Faults, Said, driver
from tests.engines.fakes.anthropic import SIGNATURE, AnthropicFake, named

TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}
SAID = Said(reasoning="well, so", calls=(("look", '{"at": "ü"}'), ("look", "{}")))


def asked(**fields: Any) -> Request:
    return chat.parse({"messages": [{"role": "user", "content": "hi"}], **fields})


async def call(engine: Engine, request: Request) -> list[Delta]:
    async with engine.chat(request) as deltas:
        return [delta async for delta in deltas]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_with_everything(stream: bool) -> None:
    async with AnthropicFake(SAID, redacted="eHg=") as fake:
        engine = driver("anthropic", fake.url)
        deltas = await call(engine, asked(stream=stream, tools=[TOOL]))
        assert "".join(delta.text for delta in deltas) == SAID.text
        assert "".join(delta.reasoning for delta in deltas) == "well, so"
        found: dict[int, list[str]] = {}
        for delta in deltas:
            for piece in delta.tool_calls:
                found.setdefault(piece.index, []).append(piece.arguments)
        assert ["".join(parts) for parts in found.values()] == [
            '{"at": "ü"}' if not stream else '{"at": "\\u00fc"}',
            "{}",
        ]
        names = [(piece.id, piece.name) for delta in deltas for piece in delta.tool_calls if piece.id]
        assert names == [("toolu_0", "look"), ("toolu_1", "look")]
        assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["tool_calls"]
        last = next(delta for delta in reversed(deltas) if delta.usage is not None)
        assert last.usage == Usage(4, len(SAID.sampled))
        assert (last.metadata or {})["upstream_usage"]["cache_read_input_tokens"] == 1
        assert all(delta.ids is None for delta in deltas)
        if stream:
            assert [delta.signature for delta in deltas if delta.signature] == [SIGNATURE]
            assert [delta.redacted for delta in deltas if delta.redacted] == ["eHg="]
        else:
            assert deltas[0].blocks == fake.blocks()
        await engine.close()


async def test_the_key_and_the_version_go_their_own_way() -> None:
    async with AnthropicFake() as fake:
        engine = driver("anthropic", fake.url + "/v1")
        await call(engine, asked())
        headers = {name.lower(): value for name, value in fake.asked[0].headers.items()}
        assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk-secret", "2023-06-01")
        assert "authorization" not in headers
        assert fake.asked[0].path == "/v1/messages"
        await engine.close()


async def test_a_body_of_its_own_dialect_goes_on_as_it_came() -> None:
    body = {
        "model": "claude",
        "max_tokens": 77,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: v=1; cch=ab12;\n"},
            {"type": "text", "text": "S"},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
                    {"type": "redacted_thinking", "data": "eA=="},
                    {"type": "tool_use", "id": "toolu_9", "name": "look", "input": {"b": 1, "a": 2}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "ok", "is_error": True}],
            },
        ],
        "tools": [{"name": "look", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
        "stream": True,
    }
    beta = {"anthropic-beta": "interleaved-thinking-2025-05-14", "anthropic-version": "2023-06-02"}
    async with AnthropicFake() as fake:
        engine = driver("anthropic", fake.url)
        request = msgspec.structs.replace(messages.parse(body), raw=body, forwarded=beta)
        await call(engine, request)
        (sent,) = fake.asked
        assert sent.body == {**body, "model": "model"}
        assert sent.path == "/v1/messages?beta=true"
        headers = {name.lower(): value for name, value in sent.headers.items()}
        assert {name: headers[name] for name in beta} == beta
        # A parameter that the settings fix holds all the same.
        fixed = msgspec.structs.replace(request.sampling, temperature=0.5, max_tokens=9)
        await call(engine, msgspec.structs.replace(request, sampling=fixed))
        assert fake.asked[1].body == {**body, "model": "model", "temperature": 0.5, "max_tokens": 9}
        assert await engine.count(request) == 4
        counted = fake.asked[2]
        assert counted.path == "/v1/messages/count_tokens?beta=true"
        assert counted.body == {
            name: value
            for name, value in {**body, "model": "model"}.items()
            if name not in ("max_tokens", "stream", "metadata")
        }
        await engine.close()


def test_a_conversation_is_translated() -> None:
    request = asked(
        messages=[
            {"role": "system", "content": "S"},
            {"role": "user", "content": "look"},
            {
                "role": "assistant",
                "content": "",
                "reasoning": "unsigned",
                "tool_calls": [
                    {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}},
                    {"id": "x" * 100, "type": "function", "function": {"name": "look", "arguments": "oops"}},
                ],
            },
            {"role": "tool", "tool_call_id": "call_0", "content": "one"},
            {"role": "tool", "tool_call_id": "x" * 100, "content": ""},
            {"role": "developer", "content": "D"},
            {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "text", "text": ""}]},
            {
                "role": "assistant",
                "content": "sure",
                "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "look", "arguments": ""}}],
            },
            {"role": "tool", "tool_call_id": "call_0", "content": "two"},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": "go on"},
        ],
        tools=[TOOL, {"type": "function", "function": {"name": "bare", "strict": True}}],
        tool_choice="required",
        parallel_tool_calls=False,
        stop=["x"],
        top_k=0,
        presence_penalty=0,
    )
    body = translated(request)
    assert body["system"] == [{"type": "text", "text": "S"}, {"type": "text", "text": "D"}]
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "call_0", "name": "look", "input": {"a": 1}},
                {"type": "tool_use", "id": "call_1", "name": "look", "input": {"_raw_arguments": "oops"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_0", "content": [{"type": "text", "text": "one"}]},
                {"type": "tool_result", "tool_use_id": "call_1"},
                {"type": "text", "text": "and"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "sure"},
                {"type": "tool_use", "id": "call_2", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_2", "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    assert body["tools"] == [
        {"name": "look", "description": "Look.", "input_schema": {"type": "object"}},
        {"name": "bare", "input_schema": {"type": "object", "properties": {}}, "strict": True},
    ]
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert (body["stop_sequences"], body["max_tokens"]) == (["x"], DEFAULT_MAX_TOKENS)
    assert "top_k" not in body


def test_no_two_calls_share_an_id() -> None:
    def assistant(name: str) -> dict[str, Any]:
        return {
            "role": "assistant",
            "tool_calls": [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        }

    turns = []
    for name in ("call_1", "call_1", "call_2", "é", "call_1", "a b"):
        turns += [assistant(name), {"role": "tool", "tool_call_id": name, "content": name}]
    body = translated(asked(messages=[{"role": "user", "content": "hi"}, *turns], tools=[TOOL]))
    used = [turn["content"][0]["id"] for turn in body["messages"] if turn["role"] == "assistant"]
    results = [turn["content"][0]["tool_use_id"] for turn in body["messages"][1:] if turn["role"] == "user"]
    assert len(set(used)) == 6
    assert results == used
    both = assistant("call_0")
    both["tool_calls"] = both["tool_calls"] * 2
    said = [{"role": "tool", "tool_call_id": "call_0", "content": text} for text in ("one", "two")]
    first, second = translated(asked(messages=[{"role": "user", "content": "hi"}, both, *said], tools=[TOOL]))[
        "messages"
    ][1:]
    assert [block["tool_use_id"] for block in second["content"]] == [block["id"] for block in first["content"]]
    assert len({block["id"] for block in first["content"]}) == 2


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"tool_choice": {"type": "function", "function": {"name": "look"}}}, {"type": "tool", "name": "look"}),
        ({"parallel_tool_calls": True}, None),
    ],
)
def test_tool_choices(fields: dict[str, Any], sent: Any) -> None:
    assert translated(asked(tools=[TOOL], **fields)).get("tool_choice") == sent


def test_schemas_thinking_and_limits() -> None:
    described = {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}}
    body = translated(
        asked(response_format=described, chat_template_kwargs={"enable_thinking": False}, max_tokens=5, temperature=0.5)
    )
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    assert (body["thinking"], body["max_tokens"], body["temperature"]) == ({"type": "disabled"}, 5, 0.5)
    for effort, sent in (("minimal", "low"), ("high", "high")):
        body = translated(asked(chat_template_kwargs={"reasoning_effort": effort}))
        assert body["output_config"] == {"effort": sent}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"seed": 1}, "seed"),
        ({"n": 2}, "n"),
        ({"min_p": 0.1}, "min_p"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"stop_token_ids": [1]}, "stop_token_ids"),
        ({"logit_bias": {"1": 1}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"logprobs": True}, "logprobs"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"verbosity": "low"}}, "chat_template_kwargs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
    ids=str,
)
def test_what_the_api_lacks_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        translated(asked(**fields))
    assert caught.value.path == path


def test_images_go_as_base64() -> None:
    part = MediaPart(digest="d" * 64, media_type="image/png")
    said = Message(role="user", content=(TextPart(text="see"), part))
    request = Request(dialect="chat", model="", messages=(said,), media={"d" * 64: b"\x89PNG"})
    (turn,) = translated(request)["messages"]
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert turn["content"] == [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    with pytest.raises(InvalidRequestError):
        translated(Request(dialect="chat", model="", messages=(said,)))


async def test_a_limit_of_the_drivers_own_goes_on_record() -> None:
    async with AnthropicFake() as fake:
        engine = driver("anthropic", fake.url)
        (delta,) = await call(engine, asked())
        assert (delta.metadata or {})["max_tokens_sent"] == fake.asked[0].body["max_tokens"] == DEFAULT_MAX_TOKENS
        (delta,) = await call(engine, asked(max_tokens=4))
        assert "max_tokens_sent" not in (delta.metadata or {})
        await engine.close()


async def test_models_are_known_by_alias_too() -> None:
    async with AnthropicFake() as fake:
        engine = driver("anthropic", fake.url)
        assert [card.name for card in await engine.models()] == ["model"]
        await engine.close()
        for name in ("other", "an other?/model"):
            other = driver("anthropic", fake.url, name=name)
            assert [card.name for card in await other.models()] == ["model-20250101", "small-20250101"]
            await other.close()


@pytest.mark.parametrize(
    ("kind", "message", "raised"),
    [
        ("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextLengthError),
        ("invalid_request_error", "temperature: must be 1", InvalidRequestError),
        ("rate_limit_error", "slow down", EngineError),
        ("overloaded_error", "Overloaded", EngineUnreachableError),
        ("api_error", "Internal server error", EngineError),
        ("new_error", "?", EngineError),
    ],
)
def test_errors_in_a_stream(kind: str, message: str, raised: type[Exception]) -> None:
    reader = MessageReader()
    data = named("error", error={"type": kind, "message": message}).split(b"data: ")[1]
    with pytest.raises(raised, match=message.replace("?", r"\?")):
        reader.read(data)


async def test_overload_has_a_status_of_its_own() -> None:
    faults = Faults(status=529, error=AnthropicFake.error("overloaded_error", "Overloaded"))
    async with AnthropicFake(faults=faults) as fake:
        engine = driver("anthropic", fake.url)
        with pytest.raises(EngineUnreachableError, match="Overloaded"):
            await call(engine, asked())
        await engine.close()


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "stop"),
        (None, None),
    ],
)
def test_why_a_reply_ended(reason: str | None, finish: str | None) -> None:
    (delta,) = MessageReader().read(
        b'{"type": "message_delta", "delta": {"stop_reason": %s}}' % (f'"{reason}"'.encode() if reason else b"null")
    )
    assert delta.finish_reason == finish
    assert ("upstream_stop_reason" in (delta.metadata or {})) == (reason == "pause_turn")
    (delta,) = MessageReader().read(
        b'{"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}}'
    )
    assert (delta.finish_reason, delta.stop_reason) == ("stop", "END")


def test_blocks_of_the_services_own_are_named() -> None:
    reader = MessageReader()
    assert (
        reader.read(b'{"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use"}}') == []
    )
    piece = b'{"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}}'
    assert reader.read(piece) == []
    assert reader.read(b'{"type": "new_event"}') == []
    (delta,) = reader.read(b'{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}')
    assert (delta.metadata or {})["blocks_left_out"] == ["server_tool_use"]


DEEP = b"[" * 300 + b"]" * 300


@pytest.mark.parametrize(
    "data",
    [
        b'{"type": 5}',
        b'{"type": "message", "content": "x"}',
        b'{"type": "message", "content": [{"type": "text", "text": 5}]}',
        b'{"type": "message", "content": [], "usage": {"input_tokens": -1}}',
        b'{"type": "message", "content": [], "stop_reason": 5}',
        b'{"type": "content_block_start", "index": -1, "content_block": {"type": "text"}}',
        b'{"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "input": []}}',
        b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}}',
        b'{"type": "message_start", "message": {"usage": 5}}',
        b'{"type": "message", "content": [], "usage": {"input_tokens": 2147483647, "cache_read_input_tokens": 1}}',
        b'{"type": "message", "content": [], "usage": {"x": ' + DEEP + b"}}",
        b'{"type": "message", "content": [{"type": "server_x", "v": ' + DEEP + b"}]}",
        b'{"type": "message", "content": [{"type": "tool_use", "input": {"a": 1e400}}]}',
        b'{"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "input": {"a": 1e400}}}',
    ],
    ids=lambda data: data.decode()[:100],
)
def test_what_cannot_be_used_is_refused(data: bytes) -> None:
    with pytest.raises(EngineError, match="cannot be used"):
        MessageReader().read(data)


def test_a_long_name_of_a_block_is_told_once() -> None:
    reader = MessageReader()
    for _ in range(3):
        event = {"type": "content_block_start", "index": 0, "content_block": {"type": "x" * 100}}
        assert reader.read(msgspec.json.encode(event)) == []
    (delta,) = reader.read(b'{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}')
    assert (delta.metadata or {})["blocks_left_out"] == ["x" * 60]
