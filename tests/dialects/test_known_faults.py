"""Requests that tripped systems of this kind, read by each API as they are meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.dialects import chat, messages, responses
from agentworld.dialects.chat_reply import shorten_ids, wire_message, wire_messages
from agentworld.dialects.exchange import Request
from agentworld.errors import InvalidRequestError
from agentworld.forest import chain, match_key, tools_digest
from agentworld.records import FunctionCall, Message, ToolCall

USER = {"role": "user", "content": "go"}
CALL = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PLAIN_TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=20)


def in_chat(*items: dict[str, Any], **fields: Any) -> Request:
    return chat.parse({"messages": [USER, *items, USER], **fields})


def keys(request: Request) -> list[bytes]:
    return chain(b"root", request.messages, match_key)


# --- content: "" against null ----------------------------------------------------------------------------------
def test_an_empty_text_is_accepted_and_is_not_null() -> None:
    empty = in_chat({"role": "assistant", "content": ""})
    null = in_chat({"role": "assistant", "content": None})
    assert (empty.messages[1].content, null.messages[1].content) == ("", None)
    assert keys(empty) != keys(null)
    assert wire_message(empty.messages[1])["content"] == ""
    blocks = messages.parse({"max_tokens": 1, "messages": [USER, {"role": "assistant", "content": ""}, USER]})
    assert blocks.messages[1].content == ""
    item = responses.parse({"input": [USER, {"role": "assistant", "content": ""}, USER]})
    assert item.messages[1].content == ""


@pytest.mark.parametrize("content", ["", None, []])
def test_beside_calls_any_way_to_say_nothing_is_one(content: Any) -> None:
    said = {"role": "assistant", "content": content, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "call_0", "content": "r"}
    request = in_chat(said, result)
    assert keys(request) == keys(in_chat({"role": "assistant", "tool_calls": [CALL]}, result))
    if content == []:
        assert request.messages[1].content is None


# --- tools -----------------------------------------------------------------------------------------------------
def test_no_calls_are_an_empty_list_too() -> None:
    assert in_chat({"role": "assistant", "content": "x", "tool_calls": []}).messages[1].tool_calls == ()


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_no_tools_are_dropped_with_their_choice(choice: Any) -> None:
    request = in_chat(tools=[], tool_choice=choice)
    assert (request.tools, request.sampling.tool_choice) == ((), None)
    choices = {"type": choice} if choice else None
    other = messages.parse({"max_tokens": 1, "messages": [USER], "tools": [], "tool_choice": choices})
    assert (other.tools, other.sampling.tool_choice) == ((), None)
    third = responses.parse({"input": "go", "tools": [], "tool_choice": choice})
    assert (third.tools, third.sampling.tool_choice) == ((), None)


def test_no_tools_are_refused_where_a_call_is_demanded() -> None:
    named = {"type": "function", "function": {"name": "f"}}
    demands: list[Callable[[], Any]] = [
        lambda: in_chat(tools=[], tool_choice="required"),
        lambda: in_chat(tools=[], tool_choice=named),
        lambda: messages.parse({"max_tokens": 1, "messages": [USER], "tools": [], "tool_choice": {"type": "any"}}),
        lambda: responses.parse({"input": "go", "tools": [], "tool_choice": "required"}),
        lambda: responses.parse({"input": "go", "tools": [], "tool_choice": {"type": "function", "name": "f"}}),
    ]
    for demand in demands:
        with pytest.raises(InvalidRequestError) as caught:
            demand()
        assert caught.value.path is not None
        assert caught.value.path.startswith("tool")


def test_marks_for_a_cache_change_no_tools_and_no_conversation() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    plain = in_chat(tools=[TOOL])
    for tool in ({**TOOL, **mark}, {**TOOL, "function": {**TOOL["function"], **mark}}):  # type: ignore[dict-item]
        marked = in_chat(tools=[tool])
        assert tools_digest(marked.tools) == tools_digest(plain.tools)
    part = {"type": "text", "text": "go", **mark}
    assert keys(chat.parse({"messages": [{"role": "user", "content": [part]}]})) == keys(
        chat.parse({"messages": [{"role": "user", "content": "go", **mark}]})
    )

    def claude(system: list[dict[str, Any]], block: dict[str, Any], thinking: dict[str, Any]) -> Request:
        said = [{"type": "thinking", "thinking": "hm", **thinking}, {"type": "text", "text": "ok"}]
        conversation = [
            {"role": "user", "content": [{"type": "text", "text": "go", **block}]},
            {"role": "assistant", "content": said},
            {"role": "user", "content": "on"},
        ]
        return messages.parse({"max_tokens": 9, "system": system, "messages": conversation})

    agent = {"type": "text", "text": "You are an agent."}
    first = claude([agent], {}, {"signature": "s1"})
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=0a1b2c;"}
    second = claude([line, {**agent, **mark}], mark, {"signature": "s2"})
    assert second.messages == first.messages


# --- roles -----------------------------------------------------------------------------------------------------
def test_a_developer_is_the_system_where_the_engine_knows_none() -> None:
    request = chat.parse({"messages": [{"role": "developer", "content": "be brief"}, USER]})
    assert [each["role"] for each in wire_messages(request, developer=False)] == ["system", "user"]
    assert [each["role"] for each in wire_messages(request, developer=True)] == ["developer", "user"]


# --- reasoning -------------------------------------------------------------------------------------------------
@given(st.none() | PLAIN_TEXT, st.none() | PLAIN_TEXT)
def test_no_spelling_of_reasoning_is_lost(older: str | None, newer: str | None) -> None:
    (_, said, _) = in_chat(
        {"role": "assistant", "content": "x", "reasoning_content": older, "reasoning": newer}
    ).messages
    texts = list(dict.fromkeys(text for text in (older, newer) if text))
    assert said.reasoning == ("\n".join(texts) if texts else None)
    sent = wire_message(said)
    assert sent.get("reasoning") == sent.get("reasoning_content") == said.reasoning


def test_thinking_that_is_not_shown_is_none() -> None:
    blocks = [{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "x"}]
    request = messages.parse({"max_tokens": 1, "messages": [USER, {"role": "assistant", "content": blocks}, USER]})
    assert request.messages[1].reasoning is None
    part = {"type": "thinking", "thinking": ""}
    assert in_chat({"role": "assistant", "content": [part]}).messages[1].reasoning is None


# --- ids of calls ----------------------------------------------------------------------------------------------
IDS = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=300)


@given(st.lists(IDS, min_size=1, max_size=4, unique=True), st.integers(40, 64))
def test_ids_of_any_length_tie_results_to_calls(ids: list[str], limit: int) -> None:
    calls = tuple(ToolCall(id=each, function=FunctionCall("f", "{}")) for each in ids)
    results = tuple(Message("tool", f"of {each}", tool_call_id=each) for each in ids)
    turn = (Message("assistant", None, tool_calls=calls), *results)
    request = Request(dialect="chat", model="", messages=(*turn, *turn))  # The same ids in each turn.
    whole = wire_messages(request, developer=True)
    sent = shorten_ids(whole, limit)
    assert whole == wire_messages(request, developer=True)
    for begin in (0, len(turn)):
        short = [call["id"] for call in sent[begin]["tool_calls"]]
        assert len(set(short)) == len(ids)
        assert all(len(each) <= limit for each in short)
        assert [(each["tool_call_id"], each["content"]) for each in sent[begin + 1 : begin + len(turn)]] == [
            (new, f"of {old}") for new, old in zip(short, ids, strict=True)
        ]
        kept = [(new, old) for new, old in zip(short, ids, strict=True) if len(old) <= limit]
        assert all(new == old for new, old in kept)


@given(IDS)
def test_any_id_is_kept_as_it_came(call_id: str) -> None:
    said = {"role": "assistant", "tool_calls": [{**CALL, "id": call_id}]}
    request = in_chat(said, {"role": "tool", "tool_call_id": call_id, "content": "r"})
    assert (request.messages[1].tool_calls[0].id, request.messages[2].tool_call_id) == (call_id, call_id)
    use = {"type": "tool_use", "id": call_id, "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": "r"}
    turns = [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    other = messages.parse({"max_tokens": 1, "messages": turns})
    assert (other.messages[1].tool_calls[0].id, other.messages[2].tool_call_id) == (call_id, call_id)


@pytest.mark.parametrize("arguments", ["", "[]", "123", "null", "mkdir -p test/{test1,test2", '{"a": ', '"x"'])
def test_arguments_of_any_kind_are_kept_raw(arguments: str) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "call_0", "content": "r"}
    request = in_chat({"role": "assistant", "tool_calls": [call]}, result)
    assert request.messages[1].tool_calls[0].function.arguments == arguments
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    output = {"type": "function_call_output", "call_id": "c", "output": "r"}
    third = responses.parse({"input": [USER, item, output]})
    assert third.messages[1].tool_calls[0].function.arguments == arguments


def test_arguments_that_are_no_text_are_their_json() -> None:
    for value in ({"a": 1}, [], 123):
        call = {**CALL, "function": {"name": "f", "arguments": value}}
        said = in_chat({"role": "assistant", "tool_calls": [call]}, {**USER})
        assert json.loads(said.messages[1].tool_calls[0].function.arguments) == value
