"""What the quick reader of chat bodies takes means the same to the careful one; what that one refuses, none takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.dialects import Request, chat, quick_chat
from agentworld.dialects.fields import decode_object
from agentworld.errors import InvalidRequestError

Pairs = list[tuple[str, Any]]
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
CALL: dict[str, Any] = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
HELLO = {"role": "user", "content": "hello"}
DEEP: Any = "x"
for _ in range(120):
    DEEP = [DEEP]
ODD: list[Any] = [None, True, False, 0, 1, -1, 2, 0.5, 1.0, -0.0, 1e300, 2**63, 10**400, "", "x", "auto", [], ["x"], {}]
ODD += [[None], [[]], {"x": 1}, {"type": "text"}, {"user_id": {}}, float("nan"), float("inf"), "\ud800", "é\x00", DEEP]

words = st.sampled_from(["", "x", "f", "hello", "é", "<think>", "call_0"])
settings = st.sampled_from(["enable_thinking", "reasoning_effort", "verbosity"])
optional_words = st.none() | words
flags = st.none() | st.booleans()


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def beside(good: dict[str, Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """What is good, with up to two fields changed."""
    changes = st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: fields[name] for name in names})
    )
    return changes.map(lambda changed: {**good, **changed})


def often(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What is usual, and sometimes anything."""
    return st.one_of(*[usual] * 24, st.sampled_from(ODD))


functions = beside(CALL["function"], name=often(words), arguments=often(words), strict=st.just(True))
calls = beside(
    CALL,
    id=often(words),
    type=often(st.just("function")),
    function=often(functions),
    index=often(st.just(0)),
    x=st.just(1),
)
marks = st.just({"type": "ephemeral"}) | st.sampled_from(ODD)
parts = beside({"type": "text", "text": "x"}, type=often(st.just("text")), text=often(words), cache_control=marks)
fields_of_messages: dict[str, st.SearchStrategy[Any]] = {
    "role": often(st.sampled_from(["system", "developer", "user", "assistant", "assistant", "tool"])),
    "content": often(optional_words | st.lists(often(parts), max_size=2)),
    "tool_calls": often(st.none() | st.lists(often(calls), max_size=2)),
    "tool_call_id": often(optional_words),
    "name": often(optional_words),
    "reasoning_content": often(optional_words),
    "reasoning": often(optional_words),
    "refusal": st.sampled_from([None, None, "no"]),
    "function_call": st.sampled_from([None, None, {}]),
    "audio": st.sampled_from([None, None, {}]),
    "annotations": st.sampled_from([None, [], [], [{}]]),
    "id": st.sampled_from(ODD),
    "cache_control": marks,
    "unknown": st.sampled_from(ODD),
}
GOOD: list[dict[str, Any]] = [
    HELLO,
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": None, "tool_call_id": "call_0"},
]
messages = st.one_of([beside(good, **fields_of_messages) for good in GOOD])
tools = st.just(TOOL) | objects(
    type=often(st.just("function")),
    function=often(objects(name=often(words), description=often(words), parameters=often(st.just({})), x=words)),
    cache_control=st.just({"type": "ephemeral"}),
)
whole = st.sampled_from([None, -1, 0, 1, 2, 5, 64, 128, 129, 20, 21, 2**31, 2**63 - 1, -(2**63), 256.0])
numbers = st.sampled_from([None, -2, -2.5, 0, 0.0, -0.0, 0.7, 1, 1.0, 1.5, 2, 100, 100.5])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "model": optional_words,
    "messages": st.lists(often(messages), max_size=4),
    "tools": st.none() | st.lists(often(tools), max_size=2),
    "tool_choice": st.sampled_from([None, "auto", "none", "required", {"type": "function", "function": {"name": "f"}}]),
    "stream": flags,
    "stream_options": st.none() | objects(include_usage=often(flags), include_obfuscation=often(flags), x=flags),
    "logprobs": flags,
    "top_logprobs": whole,
    "return_token_ids": flags,
    "include_reasoning": flags,
    "chat_template_kwargs": st.none()
    | st.dictionaries(words | settings, st.sampled_from([*ODD, True, "high"]), max_size=2),
    "temperature": numbers,
    "top_p": numbers,
    "top_k": whole,
    "min_p": numbers,
    "max_tokens": whole,
    "max_completion_tokens": whole,
    "min_tokens": whole,
    "stop": optional_words | st.lists(often(words), max_size=3),
    "stop_token_ids": st.lists(whole, max_size=2),
    "seed": whole,
    "n": whole,
    "presence_penalty": numbers,
    "frequency_penalty": numbers,
    "repetition_penalty": numbers,
    "logit_bias": st.none() | st.just({"5": 1}),
    "parallel_tool_calls": flags,
    "response_format": st.sampled_from([None, {"type": "text"}, {"type": "json_object"}, {"type": "x"}]),
    "reasoning_effort": st.sampled_from([None, *chat.EFFORTS, "x"]),
    "verbosity": st.sampled_from([None, *chat.VERBOSITIES, "x"]),
    "skip_special_tokens": flags,
    "spaces_between_special_tokens": flags,
    "continue_final_message": flags,
    "add_generation_prompt": flags,
    "functions": st.none() | st.just([]),
    "user": optional_words,
    "metadata": st.none() | st.dictionaries(words, words, max_size=2),
    "client_metadata": st.none() | st.just({"session_id": "s"}),
    "store": flags,
    "service_tier": optional_words,
    "prompt_cache_key": optional_words,
    "safety_identifier": optional_words,
    "unknown": st.none() | words,
}


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Bodies with some fields, most of them good, and now and then one twice."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=5))
    said: Pairs = [("messages", draw(st.lists(messages, min_size=1, max_size=4)))] if draw(st.integers(0, 9)) else []
    said += [(name, draw(often(FIELDS[name]))) for name in names]
    text = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in said)
    return f"{{{text}}}".encode()


def careful(body: bytes) -> tuple[Request, dict[str, Any]] | None:
    """The request as the careful reader has it, with the decoded body; None where it is refused."""
    try:
        decoded = decode_object(body)
        return chat.parse(decoded), decoded
    except InvalidRequestError:
        return None


def check(body: bytes) -> bool:
    """Whether the quick reader takes the body, in which case both say the same."""
    quick = quick_chat.read(body)
    if quick is None:
        return False
    read = careful(body)
    assert read is not None, body
    request, whose = quick
    expected, decoded = read
    # The text tells 1 from 1.0 and True, as the JSON does that engines get.
    assert repr(request) == repr(expected)
    assert request == expected
    for name in ("model", "metadata", "prompt_cache_key"):
        assert whose.get(name) == decoded.get(name)
    assert "client_metadata" not in decoded
    return True


@given(bodies())
def test_both_readers_say_the_same(body: bytes) -> None:
    check(body)


@given(bodies(), st.integers(0), st.binary(max_size=2))
def test_both_readers_say_the_same_of_damaged_bodies(body: bytes, at: int, damage: bytes) -> None:
    at %= len(body)
    check(body[:at] + damage + body[at + 1 :])


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_odd_values_of_each_field(name: str) -> None:
    for value in ODD:
        fields = {"messages": [HELLO], "tools": [TOOL], name: value}
        check(json.dumps(fields).encode())
        check(json.dumps({**fields, "messages": [{**HELLO, name: value}]}).encode())


USUAL: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0, "max_tokens": 256},
    "whole numbers": {"temperature": 1, "top_p": 1, "top_k": -1, "presence_penalty": 0},
    "of an agent": {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True},
    "streamed": {"stream": True, "stream_options": {"include_usage": True}},
    "nothing set": dict.fromkeys(["temperature", "tools", "tool_choice", "stop", "stream", "metadata", "seed"]),
    "sampled elsewhere": {"skip_special_tokens": True, "add_generation_prompt": True, "reasoning_effort": "high"},
    "no thinking": {"chat_template_kwargs": {"enable_thinking": False}},
    "for whom": {"user": "u", "metadata": {"user_id": "u"}, "prompt_cache_key": "k", "store": False},
    "ids": {"logprobs": True, "top_logprobs": 2, "return_token_ids": True, "n": 4, "seed": -1, "stop": ["a", "b"]},
}
TALK = [
    {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "t", "refusal": None},
    {"role": "tool", "tool_call_id": "call_0", "content": "r"},
    {
        "role": "assistant",
        "content": "said",
        "tool_calls": None,
        "function_call": None,
        "annotations": [],
        "audio": None,
    },
    {"role": "user", "content": "and now?", "name": "n"},
]


@pytest.mark.parametrize("fields", USUAL.values(), ids=USUAL)
def test_usual_bodies_are_read_quickly(fields: dict[str, Any]) -> None:
    for said in ([HELLO], TALK):
        assert check(json.dumps({"model": "m", "messages": said, **fields}).encode())


def test_tools_that_come_again_are_the_same_records() -> None:
    body = {"messages": [HELLO], "tools": [TOOL]}
    first, again = (quick_chat.read(json.dumps(body).encode()) for _ in range(2))
    assert first is not None
    assert again is not None
    assert first[0].tools is again[0].tools
    assert first[0].tools == (TOOL,)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"messages": []}', b'{"messages": [{"role": "user"}]}'])
def test_what_is_refused_is_left_to_the_careful_reader(body: bytes) -> None:
    assert quick_chat.read(body) is None
    assert careful(body) is None
