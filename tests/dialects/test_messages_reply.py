"""Anthropic replies out: bodies, the order of events, stop reasons and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentworld.dialects.dialect import CHAT, MESSAGES, dialect_at
from agentworld.dialects.exchange import Choice, Delta, Reply, Request, ToolCallDelta
from agentworld.dialects.messages_blocks import RAW_ARGUMENTS
from agentworld.dialects.messages_reply import SIGNATURE, MessagesStream, error_body, error_event, response_body
from agentworld.errors import AgentWorldError, ContextLengthError, InvalidRequestError, PausedError
from agentworld.gateway.models import ModelNotFoundError
from agentworld.records import FunctionCall, Message, ToolCall, Usage

REQUEST = Request(dialect="anthropic", model="claude", messages=())


def reply(finish: str = "stop", stop: str | None = None, **message: Any) -> Reply:
    choice = Choice(
        index=0,
        message=Message(role="assistant", **message),
        finish_reason=finish,
        metadata={"stop_reason": stop} if stop else {},
    )
    return Reply(reply_id="msg_1", model="m", created=1, choices=[choice], prompt_ids=[1, 2], usage=Usage(2, 3))


def call(arguments: str, call_id: str = "c1") -> ToolCall:
    return ToolCall(id=call_id, function=FunctionCall("look", arguments))


def events(data: bytes) -> list[dict[str, Any]]:
    """The events, each with its name and its data agreeing."""
    out = []
    for block in data.decode().split("\n\n")[:-1]:
        name, body = block.split("\n")
        event = json.loads(body.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        out.append(event)
    return out


def stream(deltas: list[Delta], end: Reply, request: Request = REQUEST) -> list[dict[str, Any]]:
    writer = MessagesStream(request, "msg_1", "m", 1)
    return events(b"".join(writer.delta(delta) for delta in deltas) + writer.finish(end))


def folded(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client builds from the events; checks their order on the way."""
    assert [event["type"] for event in found[:2]] == ["message_start", "ping"]
    assert [event["type"] for event in found[-2:]] == ["message_delta", "message_stop"]
    message: dict[str, Any] = found[0]["message"]
    is_open = False
    for event in found[2:-2]:
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == len(message["content"])
            message["content"].append(
                {**event["content_block"], **({"raw": ""} if "input" in event["content_block"] else {})}
            )
            is_open = True
        elif event["type"] == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            assert is_open
            assert event["index"] == len(message["content"]) - 1
            name = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                delta["type"]
            )
            if name is None:
                block["raw"] += delta["partial_json"]
            else:
                block[name] += delta[name]
        else:
            assert event == {"type": "content_block_stop", "index": len(message["content"]) - 1}
            assert is_open
            is_open = False
    assert not is_open
    for block in message["content"]:
        if "raw" in block:
            block["input"] = json.loads(block.pop("raw"))
    return {**message, **found[-2]["delta"], "usage": found[-2]["usage"]}


@pytest.mark.parametrize(
    "said",
    [
        {"content": "hi"},
        {"content": ""},
        {"content": "  \n"},
        {"content": "\n\nhi ", "reasoning": "hm"},
        {"content": "für", "reasoning": "a", "tool_calls": (call('{"a": [1, "数"]}'), call("{}", "c2"))},
        {"content": None, "tool_calls": (call(""),)},
        {"content": None, "tool_calls": (call('{"a": '), call("[]", "c2"), call("3", "c3"))},
    ],
)
def test_stream_and_body_say_the_same_however_it_is_cut(said: dict[str, Any]) -> None:
    end = reply("tool_calls" if said.get("tool_calls") else "stop", **said)
    body = response_body(REQUEST, end)
    pieces = [Delta(reasoning=piece) for piece in said.get("reasoning") or ""]
    pieces += [Delta(text=piece) for piece in said["content"] or ""]
    for position, each in enumerate(said.get("tool_calls", ())):
        pieces.append(Delta(tool_calls=(ToolCallDelta(position, each.id, each.function.name, "{"),)))
        pieces.append(Delta(tool_calls=(ToolCallDelta(position, arguments='"a'),)))
    assert folded(stream(pieces, end)) == body
    assert folded(stream([], reply())) == response_body(REQUEST, reply())
    assert body["model"] == "claude"
    assert body["usage"]["input_tokens"] == 2
    assert body["usage"]["output_tokens"] == 3


def test_thinking_between_texts_keeps_its_place() -> None:
    deltas = [
        Delta(reasoning="one"),
        Delta(text="\n\n"),
        Delta(reasoning=" two"),
        Delta(text="A"),
        Delta(reasoning="\n"),
        Delta(text="B"),
        Delta(reasoning="three"),
        Delta(text="C"),
    ]
    found = folded(stream(deltas, reply(content="\n\nABC", reasoning="one two\nthree")))
    assert [block.get("thinking", block.get("text")) for block in found["content"]] == [
        "one two",
        "\n\nAB",
        "\nthree",
        "C",
    ]
    assert [block.get("signature") for block in found["content"]] == [SIGNATURE, None, SIGNATURE, None]


def test_no_tool_call_goes_out_before_the_end() -> None:
    """An agent acts on a call at once, and must find it on record."""
    writer = MessagesStream(REQUEST, "msg_1", "m", 1)
    whole = ToolCallDelta(0, "c1", "look", "{}")
    assert b"look" not in writer.delta(Delta(tool_calls=(whole,), finish_reason="tool_calls"))
    assert writer.delta(Delta(tool_calls=(ToolCallDelta(0, arguments=" "),))) == b""
    assert b"look" in writer.finish(reply("tool_calls", tool_calls=(call("{}"),)))


def test_the_prompt_is_counted_at_the_start() -> None:
    found = stream([Delta(prompt_ids=[1, 2, 3, 4], text="x")], reply(content="x"))
    assert found[0]["message"]["usage"]["input_tokens"] == 4


@pytest.mark.parametrize(
    ("finish", "stop", "wanted"),
    [
        ("stop", None, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("tool_calls", None, ("tool_use", None)),
        ("length", None, ("max_tokens", None)),
        ("content_filter", None, ("refusal", None)),
    ],
)
def test_stop_reasons(finish: str, stop: str | None, wanted: tuple[str, str | None]) -> None:
    body = response_body(REQUEST, reply(finish, stop, content="x"))
    assert (body["stop_reason"], body["stop_sequence"]) == wanted


def test_broken_arguments_are_not_lost() -> None:
    body = response_body(REQUEST, reply("tool_calls", tool_calls=(call('{"command": "ls'),)))
    assert body["content"][0]["input"] == {RAW_ARGUMENTS: '{"command": "ls'}


def test_the_model_is_ours_where_the_caller_named_none() -> None:
    unnamed = Request(dialect="anthropic", model="", messages=())
    assert response_body(unnamed, reply())["model"] == "m"
    assert stream([], reply(), unnamed)[0]["message"]["model"] == "m"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequestError("bad", path="messages", hint="Mend it"), "invalid_request_error"),
        (ModelNotFoundError("gone"), "not_found_error"),
        (PausedError("paused"), "overloaded_error"),
        (AgentWorldError("broken"), "api_error"),
    ],
)
def test_errors(error: AgentWorldError, kind: str) -> None:
    body = error_body(error)
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert error.message in body["error"]["message"]
    assert events(error_event(error)) == [body]


def test_errors_say_where_and_what_to_do() -> None:
    body = error_body(InvalidRequestError("it is bad", path="messages[0]", hint="Mend it"))
    assert body["error"]["message"] == "messages[0]: it is bad. Mend it"
    # Clients shorten the conversation when they read this.
    assert error_body(ContextLengthError("9 of 8"))["error"]["message"] == "prompt is too long: 9 of 8"


def test_which_dialect_answers_a_path() -> None:
    assert dialect_at("/t/t1/v1/messages/count_tokens") is MESSAGES
    assert dialect_at("/v1/chat/completions") is CHAT
    assert dialect_at("/nothing") is CHAT


def test_signatures_are_those_of_the_service() -> None:
    """Each thinking block ends with its own, in the order in which they came, also where the thinking is not shown."""
    deltas = [
        Delta(reasoning="one"),
        Delta(signature="c2ln"),
        Delta(reasoning="two"),
        Delta(signature="YTI="),
        Delta(redacted="eHg="),
        Delta(text="so"),
        Delta(signature="YTM="),
    ]
    content = folded(stream(deltas, reply(content="so", reasoning="onetwo")))["content"]
    assert content == [
        {"type": "thinking", "thinking": "one", "signature": "c2ln"},
        {"type": "thinking", "thinking": "two", "signature": "YTI="},
        {"type": "redacted_thinking", "data": "eHg="},
        {"type": "text", "text": "so"},
        {"type": "thinking", "thinking": "", "signature": "YTM="},
    ]


def test_a_service_of_this_api_counts_for_itself() -> None:
    told = {"input_tokens": 1, "cache_read_input_tokens": 9, "output_tokens": 2, "service_tier": "standard"}
    end = reply(content="so")
    end.choices[0].metadata = {"upstream_usage": told}
    blocks = [{"type": "text", "text": "so", "citations": []}, {"type": "server_tool_use", "id": "s", "input": {}}]
    end.choices[0].blocks = blocks
    body = response_body(REQUEST, end)
    assert (body["usage"], body["content"]) == (told, blocks)
    found = stream([Delta(metadata={"upstream_usage": {"input_tokens": 1}}), Delta(text="so")], end)
    assert found[0]["message"]["usage"] == {"input_tokens": 1}
    assert found[-2]["usage"] == told
