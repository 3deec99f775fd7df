"""Anthropic bodies in: what is taken, what it means, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.dialects.messages import parse
from agentworld.dialects.messages_blocks import RAW_ARGUMENTS, arguments_object, written
from agentworld.errors import InvalidRequestError
from agentworld.forest import match_key
from agentworld.records import FunctionCall, Message, TextPart, ToolCall

USER = {"role": "user", "content": "hello"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 10, "messages": list(messages or (USER,)), **more}


def read(*messages: Any, **more: Any) -> tuple[Message, ...]:
    return parse(body(*messages, **more)).messages


def use(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def test_sampling_and_tools() -> None:
    request = parse(
        body(
            tools=[{**TOOL, "cache_control": {"type": "ephemeral"}}],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            temperature=0.5,
            top_p=0.9,
            top_k=5,
            stop_sequences=["END"],
            stream=True,
        )
    )
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens) == (0.5, 0.9, 5, 10)
    assert (sampling.stop, sampling.tool_choice, sampling.parallel_tool_calls) == (("END",), "required", False)
    assert (request.dialect, request.stream, request.fit_context) == ("anthropic", True, True)
    function = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    assert request.tools == ({"type": "function", "function": function},)


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "look"}, {"type": "function", "function": {"name": "look"}}),
        (None, None),
    ],
)
def test_tool_choice(choice: Any, wanted: Any) -> None:
    assert parse(body(tools=[TOOL], tool_choice=choice)).sampling.tool_choice == wanted


def test_system_prompts_lose_the_billing_line_and_nothing_else() -> None:
    nonce = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0; cch=a1b2c;"}
    prompt = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    for system in (
        "Be brief.",
        [prompt],
        [nonce, prompt],
        "x-anthropic-billing-header: cch=ffff0;\n\nBe brief.",
        [{"type": "text", "text": f"{nonce['text']}\nBe brief."}],
    ):
        assert read(system=system)[0] == Message(role="system", content="Be brief.")
    two = read(system=[nonce, prompt, {"type": "text", "text": "x-anthropic-billing-header is a header"}])
    parts = (TextPart(text="Be brief."), TextPart(text="x-anthropic-billing-header is a header"))
    assert two[0].content == parts
    assert [message.role for message in read(system=[nonce])] == ["user"]


def test_system_messages_stay_where_they_are() -> None:
    found = read(USER, {"role": "system", "content": [{"type": "text", "text": "agents: none"}]}, system="S")
    assert [(message.role, message.content) for message in found] == [
        ("system", "S"),
        ("user", "hello"),
        ("system", "agents: none"),
    ]


def test_tool_results_are_messages_before_the_text_and_in_the_order_of_their_calls() -> None:
    found = read(
        USER,
        {"role": "assistant", "content": [use("a", x=1), use("b")]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "first"},
                result("b", [{"type": "text", "text": "B1"}, {"type": "text", "text": "B2"}]),
                result("other", "?"),
                result("a", "A", is_error=False),
                {"type": "text", "text": "second"},
            ],
        },
    )
    assert [(message.role, message.tool_call_id) for message in found[1:]] == [
        ("assistant", None),
        ("tool", "a"),
        ("tool", "b"),
        ("tool", "other"),
        ("user", None),
    ]
    assert found[3].content == (TextPart(text="B1"), TextPart(text="B2"))
    assert found[5].content == (TextPart(text="first"), TextPart(text="second"))


def test_results_are_ordered_within_their_turn_only() -> None:
    """Ids come again in every turn."""
    turn = {"role": "assistant", "content": [use("a"), use("b")]}
    back = {"role": "user", "content": [result("b", "B"), result("a", "A")]}
    texts = [message.text for message in read(USER, turn, back, turn, {"role": "user", "content": [result("b", "b")]})]
    assert texts[2:4] == ["A", "B"]
    assert texts[-1] == "b"


def test_a_failure_without_words_says_error() -> None:
    turn = {"role": "assistant", "content": [use("a")]}
    for content in ("", [], None):
        found = read(USER, turn, {"role": "user", "content": [result("a", content, is_error=True)]})
        assert found[-1].content == "error"
    assert read(USER, turn, {"role": "user", "content": [result("a", [])]})[-1].content == ""


def test_blocks_of_a_reply_are_one_reply_again() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "abc"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "Let me ", "citations": None},
        {"type": "thinking", "thinking": " hm", "signature": "def"},
        {"type": "text", "text": "look.", "cache_control": {"type": "ephemeral"}},
        use("a", path="für"),
    ]
    reply = read(USER, {"role": "assistant", "content": blocks}, USER)[1]
    assert reply == Message(
        role="assistant",
        content="Let me look.",
        reasoning="hm hm",
        tool_calls=(ToolCall(id="a", function=FunctionCall("look", '{"path": "für"}')),),
    )
    assert read(USER, {"role": "assistant", "content": [use("a")]}, USER)[1].content is None
    assert read(USER, {"role": "assistant", "content": ""}, USER)[1].content == ""


def test_what_moves_between_calls_does_not_change_the_conversation() -> None:
    plain = read(USER, {"role": "assistant", "content": "hi"}, USER)
    marked = read(
        {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}]},
        USER,
    )
    assert [match_key(b"", message) for message in plain] == [match_key(b"", message) for message in marked]


@pytest.mark.parametrize("raw", ['{"a": [1', "[]", "123", "null", '"text"', "mkdir -p test/{a,b", '{"a": "\\ud800"}'])
def test_arguments_that_are_no_object_come_back_as_they_were(raw: str) -> None:
    assert arguments_object(raw) == {RAW_ARGUMENTS: raw}
    assert written(arguments_object(raw)) == raw


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()))
def test_arguments_that_are_an_object_stay_it(value: dict[str, Any]) -> None:
    assert arguments_object(written(value)) == value


def test_no_arguments_are_an_empty_object() -> None:
    assert arguments_object("") == {}
    assert written(None) == "{}"


def test_thinking() -> None:
    assert parse(body()).template == {}
    assert parse(body(thinking={"type": "adaptive", "display": "summarized"})).template == {}
    assert parse(body(thinking={"type": "enabled", "budget_tokens": 1024})).template == {}
    assert parse(body(thinking={"type": "disabled"})).template == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("given", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "disabled"}}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "medium"),
        ({"thinking": {"type": "enabled"}, "output_config": {"effort": "max"}}, "max"),
        ({"output_config": {"effort": "low"}}, "low"),
    ],
)
def test_effort_is_kept_for_who_has_a_field_for_it(given: dict[str, Any], effort: str | None) -> None:
    assert parse(body(**given)).effort == effort


@pytest.mark.parametrize(
    ("edit", "kept"),
    [
        ({"type": "clear_thinking_20251015", "keep": "all"}, ["one", "two", "three"]),
        ({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}}, [None, "two", "three"]),
        ({"type": "clear_thinking_20251015"}, [None, None, "three"]),
    ],
)
def test_thinking_of_earlier_turns_is_cleared_as_asked(edit: Any, kept: list[str | None]) -> None:
    turns: list[Any] = []
    for thought in ("one", "two", "three"):
        block = {"type": "thinking", "thinking": thought, "signature": ""}
        turns += [USER, {"role": "assistant", "content": [block, {"type": "text", "text": "x"}]}]
    found = read(*turns, USER, context_management={"edits": [edit]})
    assert [message.reasoning for message in found if message.role == "assistant"] == kept


def test_a_schema_for_the_reply() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    asked = {"type": "json_schema", "schema": schema}
    assert parse(body(output_config={"effort": "high", "format": asked})).sampling.response_format == wanted
    assert parse(body(output_format=asked)).sampling.response_format == wanted
    assert parse(body(output_config={"effort": "low"})).sampling.response_format is None


def test_a_body_as_claude_code_sends_it() -> None:
    """Version 2.1 in print mode, shortened."""
    request = parse(
        {
            "model": "claude-opus-4-8",
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.7c8; cc_entrypoint=sdk-cli;"},
                {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
            ],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "<system-reminder>\ntoday\n</system-reminder>"},
                        {"type": "text", "text": "Say hi"},
                    ],
                },
                {"role": "system", "content": "Available agent types: none"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "YWdlbnR3b3JsZA=="},
                        {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "echo hi"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "tool_use_id": "call_1",
                            "type": "tool_result",
                            "content": "hi",
                            "is_error": False,
                            "cache_control": {"type": "ephemeral"},
                        }
                    ],
                },
            ],
            "tools": [{"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}],
            "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
            "max_tokens": 64000,
            "thinking": {"type": "adaptive"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "high"},
            "stream": True,
        }
    )
    assert [message.role for message in request.messages] == ["system", "user", "system", "assistant", "tool"]
    assert request.messages[0].content == "You are an agent."
    assert request.messages[3].reasoning == "hm"


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": "warm"}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"output_config": {"effort": "some"}}, "output_config.effort"),
        ({"output_config": {"effort": 3}}, "output_config.effort"),
        ({"seed": 1}, "seed"),
        ({"system": 5}, "system"),
        ({"system": [IMAGE]}, "system[0].type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].source.data"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [result("a", [IMAGE])]}]},
            "messages[0].content[0].content[0].source.data",
        ),
        ({"messages": [{"role": "system", "content": [result("a", "x")]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{**result("a", "x"), "odd": 1}]}]}, "messages[0].content[0].odd"),
        (
            {
                "messages": [
                    USER,
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {}}]},
                ]
            },
            "messages[1]",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "look"}]}, "tools[0].input_schema"),
        ({"tools": [{**TOOL, "strict": True}]}, "tools[0].strict"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "run"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tools"),
        ({"thinking": {"type": "much"}}, "thinking.type"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits[0].type"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
    ],
)
def test_what_cannot_be_honoured_is_refused(given: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse({**body(), **given})
    assert caught.value.path == path


def test_counting_needs_no_limit() -> None:
    request = parse({"messages": [USER]}, counting=True)
    assert (request.model, request.sampling.max_tokens) == ("", None)
