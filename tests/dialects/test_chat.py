"""The chat dialect: what is taken, what is refused and where, and how replies look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentworld.dialects import Choice, Delta, Reply, Request, ToolCallDelta
from agentworld.dialects.chat import HARMLESS, parse
from agentworld.dialects.chat_reply import DONE, ChatStream, error_body, error_event, response_body, wire_message
from agentworld.dialects.fields import decode_object
from agentworld.errors import ContextLengthError, InvalidRequestError, PoolError
from agentworld.records import FunctionCall, Message, Sampling, TextPart, ToolCall, Usage

HELLO = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def read(*messages: dict[str, Any], **fields: Any) -> Request:
    return parse({"messages": list(messages) or [HELLO], **fields})


def assistant(**fields: Any) -> Message:
    return read(HELLO, {"role": "assistant", **fields}, HELLO).messages[1]


def refused(body: dict[str, Any]) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse(body)
    return caught.value


def test_empty_text_is_not_null() -> None:
    assert assistant(content="").content == ""
    assert assistant(content=None).content is None
    assert assistant().content is None


def test_an_empty_list_beside_tool_calls_is_null() -> None:
    message = assistant(content=[], tool_calls=[CALL])
    assert message.content is None
    assert len(message.tool_calls) == 1


def test_no_tool_calls_are_absent() -> None:
    assert assistant(content="x", tool_calls=[]) == assistant(content="x") == assistant(content="x", tool_calls=None)


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_an_empty_list_of_tools_is_dropped(choice: str | None) -> None:
    request = read(tools=[], tool_choice=choice)
    assert (request.tools, request.sampling.tool_choice) == ((), None)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_an_empty_list_of_tools_is_refused_where_a_call_is_demanded(choice: Any) -> None:
    assert refused({"messages": [HELLO], "tools": [], "tool_choice": choice}).path in ("tools", "tool_choice")
    assert read(tools=[TOOL], tool_choice=choice).sampling.tool_choice == choice


def test_both_spellings_of_reasoning_are_read_and_neither_is_lost() -> None:
    assert assistant(content="x", reasoning="a").reasoning == "a"
    assert assistant(content="x", reasoning_content="a").reasoning == "a"
    assert assistant(content="x", reasoning="a", reasoning_content="a").reasoning == "a"
    both = assistant(content="x", reasoning="a", reasoning_content="b").reasoning or ""
    assert "a" in both
    assert "b" in both
    assert assistant(content=[{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"}]).reasoning == "t"


@pytest.mark.parametrize(
    ("arguments", "raw"),
    [
        ("mkdir -p test/{test1,test2", "mkdir -p test/{test1,test2"),
        ("", ""),
        ([], "[]"),
        (123, "123"),
        ({"a": 1}, '{"a":1}'),
        (None, "null"),
    ],
)
def test_tool_arguments_stay_as_they_are(arguments: Any, raw: str) -> None:
    call = {"id": "x" * 500, "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = assistant(content=None, tool_calls=[call])
    assert message.tool_calls == (ToolCall(id="x" * 500, function=FunctionCall("f", raw)),)


def test_ids_may_repeat_in_every_turn() -> None:
    result = {"role": "tool", "tool_call_id": "call_0", "content": "r"}
    turn = [{"role": "assistant", "content": None, "tool_calls": [CALL]}, result]
    assert len(read(HELLO, *turn, *turn).messages) == 5


def test_developer_is_kept_and_becomes_system_where_it_is_not_known() -> None:
    (message, _) = read({"role": "developer", "content": "d"}, HELLO).messages
    assert message.role == "developer"
    assert wire_message(message, developer=False)["role"] == "system"
    assert wire_message(message)["role"] == "developer"


def test_parts_stay_parts() -> None:
    content = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
    (message,) = read({"role": "user", "content": content}).messages
    assert message.content == (TextPart(text="a"), TextPart(text="b"))
    assert list(wire_message(message)["content"]) == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_every_sampling_field_is_read() -> None:
    given: dict[str, Any] = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "max_tokens": 10,
        "min_tokens": 2,
        "stop": ["a", "b"],
        "stop_token_ids": [7],
        "seed": 3,
        "n": 2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": -1},
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
    }
    sampling = read(tools=[TOOL], **given).sampling
    expected = {**given, "stop": ("a", "b"), "stop_token_ids": (7,), "logit_bias": {"5": -1.0}}
    assert {name: getattr(sampling, name) for name in given} == expected
    assert set(given) == set(Sampling.__struct_fields__)


def test_the_newer_limit_wins_and_minus_one_means_all() -> None:
    assert read(max_tokens=5, max_completion_tokens=7).sampling.max_tokens == 7
    assert read(top_k=-1).sampling.top_k == 0
    assert read(stop="x").sampling.stop == ("x",)
    assert read(response_format={"type": "text"}).sampling.response_format is None


def test_null_is_absent_everywhere() -> None:
    names = ("temperature", "n", "stop", "tools", "tool_choice", "logprobs", "stream", "response_format", "logit_bias")
    assert read(**dict.fromkeys(names)) == read()


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_fields_that_change_nothing_are_taken(name: str) -> None:
    assert read(**{name: {"any": "thing"}}) == read()


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [HELLO, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]},
            "messages[0].content[0].image_url.url",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]}, "messages[0].tool_calls"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"messages": [{"role": "user", "content": "x", "weight": 0}]}, "messages[0].weight"),
        ({"messages": [{"role": "assistant", "content": "x", "function_call": {}}]}, "messages[0].function_call"),
        ({"messages": [HELLO], "model": 5}, "model"),
        ({"messages": [HELLO], "temperature": "hot"}, "temperature"),
        ({"messages": [HELLO], "temperature": True}, "temperature"),
        ({"messages": [HELLO], "temperature": -1}, "temperature"),
        ({"messages": [HELLO], "top_p": 0}, "top_p"),
        ({"messages": [HELLO], "n": 0}, "n"),
        ({"messages": [HELLO], "n": 1.5}, "n"),
        ({"messages": [HELLO], "max_tokens": 0}, "max_tokens"),
        ({"messages": [HELLO], "stop": [1]}, "stop"),
        ({"messages": [HELLO], "stop": ""}, "stop"),
        ({"messages": [HELLO], "logit_bias": {"a": 1}}, "logit_bias"),
        ({"messages": [HELLO], "logit_bias": {"1": "x"}}, "logit_bias.1"),
        ({"messages": [HELLO], "stream": "yes"}, "stream"),
        ({"messages": [HELLO], "top_logprobs": 3}, "top_logprobs"),
        ({"messages": [HELLO], "tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"messages": [HELLO], "tools": [{"type": "function"}]}, "tools[0].function"),
        ({"messages": [HELLO], "tools": [TOOL], "tool_choice": "maybe"}, "tool_choice"),
        (
            {"messages": [HELLO], "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
        ),
        ({"messages": [HELLO], "response_format": {"type": "xml"}}, "response_format.type"),
        ({"messages": [HELLO], "min_tokens": 9, "max_tokens": 3}, "min_tokens"),
        ({"messages": [HELLO], "ignore_eos": True}, "ignore_eos"),
        ({"messages": [HELLO], "functions": [{"name": "f"}]}, "functions"),
        ({"messages": [HELLO], "reasoning_effort": "some"}, "reasoning_effort"),
        ({"messages": [HELLO], "reasoning_effort": 3}, "reasoning_effort"),
        ({"messages": [HELLO], "verbosity": "some"}, "verbosity"),
        (
            {
                "messages": [HELLO],
                "reasoning_effort": "low",
                "chat_template_kwargs": {"reasoning_effort": "high"},
            },
            "chat_template_kwargs",
        ),
        (
            {"messages": [HELLO], "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
            "chat_template_kwargs",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "new": 1}]}]},
            "messages[0].content[0].new",
        ),
        ({"messages": [HELLO], "best_of": 4}, "best_of"),
    ],
)
def test_refusals_name_the_place(body: dict[str, Any], path: str) -> None:
    assert refused(body).path == path


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b"\xff", b'{"a": NaN}', b'{"a": "\\ud800"}', b"[" * 10_000])
def test_bodies_that_are_no_object(data: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        decode_object(data)


def test_errors_have_the_shape_of_the_api() -> None:
    assert error_body(ContextLengthError("too long", path="messages", hint="Shorten it")) == {
        "error": {
            "message": "too long. Shorten it",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
    assert error_body(PoolError("down"))["error"]["type"] == "server_error"


REPLY = Reply(
    reply_id="r",
    model="m",
    created=1,
    choices=[
        Choice(
            index=0,
            message=Message(role="assistant", content="hi", reasoning="hm"),
            finish_reason="stop",
            ids=[1, 2],
            entries=[{"token": "hi", "logprob": -1.0}],
        )
    ],
    prompt_ids=[9],
    usage=Usage(1, 2),
)


def test_a_reply_holds_what_was_asked_for() -> None:
    plain = response_body(read(), REPLY)
    assert plain["choices"][0]["message"] == {
        "role": "assistant",
        "content": "hi",
        "reasoning": "hm",
        "reasoning_content": "hm",
    }
    assert plain["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert "prompt_token_ids" not in plain
    full = response_body(read(logprobs=True, return_token_ids=True), REPLY)
    assert (full["prompt_token_ids"], full["choices"][0]["token_ids"]) == ([9], [1, 2])
    assert full["choices"][0]["logprobs"]["content"][0]["token"] == "hi"


def events(data: bytes) -> list[Any]:
    return [json.loads(part.removeprefix(b"data: ")) for part in data.replace(DONE, b"").split(b"\n\n") if part]


def test_a_stream_holds_its_end_back() -> None:
    stream = ChatStream(read(stream=True, stream_options={"include_usage": True}), "r", "m", 1)
    (first,) = events(stream.delta(Delta(text="h", finish_reason="stop", ids=[1])))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "h"}
    assert first["choices"][0]["finish_reason"] is None
    assert "token_ids" not in first["choices"][0]
    assert stream.delta(Delta(ids=[2])) == b""
    call = ToolCallDelta(index=1, id="c", name="f", arguments="{}")
    (second,) = events(stream.delta(Delta(tool_calls=(call,))))
    assert second["choices"][0]["delta"]["tool_calls"] == [
        {"index": 1, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]
    end = stream.finish(REPLY)
    assert end.endswith(DONE)
    finish, usage = events(end)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 3)


def test_a_stream_gives_ids_to_those_who_ask() -> None:
    stream = ChatStream(read(stream=True, return_token_ids=True), "r", "m", 1)
    (first,) = events(stream.delta(Delta(ids=[1], prompt_ids=[9])))
    assert (first["prompt_token_ids"], first["choices"][0]["token_ids"]) == ([9], [1])


def test_an_error_in_a_stream_is_an_event() -> None:
    assert events(error_event(PoolError("down")))[0]["error"]["code"] == "pool_error"


def test_what_nests_without_end_is_refused_by_name() -> None:
    for field in ("tools", "chat_template_kwargs", "anything"):
        with pytest.raises(InvalidRequestError) as caught:
            decode_object(f'{{"{field}": {"[" * 101}{"]" * 101}}}'.encode())
        assert caught.value.path == field
    assert decode_object(b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}")


def test_reasoning_that_is_not_to_be_included_is_not_sent() -> None:
    """It is sampled and on record all the same."""
    for given, hidden in (({"include_reasoning": False}, True), ({"include_reasoning": True}, False), ({}, False)):
        request = read(**given)
        message = Message(role="assistant", content="x", reasoning="thought")
        whole = Reply(
            reply_id="r", model="m", created=1, choices=[Choice(index=0, message=message, finish_reason="stop")]
        )
        said = response_body(request, whole)["choices"][0]["message"]
        assert ("reasoning" in said, "reasoning_content" in said) == (not hidden, not hidden)
        assert said["content"] == "x"
        (first,) = events(ChatStream(request, "r", "m", 1).delta(Delta(reasoning="thought", text="x")))
        assert ("reasoning" in first["choices"][0]["delta"]) is not hidden
        assert first["choices"][0]["delta"]["content"] == "x"
    with pytest.raises(InvalidRequestError):
        read(include_reasoning="no")


@pytest.mark.parametrize(
    ("given", "template"),
    [
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"reasoning_effort": "high", "verbosity": "low"}, {"reasoning_effort": "high", "verbosity": "low"}),
        ({"verbosity": "medium"}, {}),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"a": 1}}, {"reasoning_effort": "low", "a": 1}),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "low"}},
            {"reasoning_effort": "low"},
        ),
    ],
)
def test_how_much_to_think_reaches_the_template(given: dict[str, Any], template: dict[str, Any]) -> None:
    assert parse({"messages": [HELLO], **given}).template == template


def test_marks_beside_a_part_are_no_part_of_it() -> None:
    marked = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}, "annotations": [], "index": 0}]
    (message,) = parse({"messages": [{"role": "user", "content": marked}]}).messages
    assert message.text == "x"
