"""Responses out: bodies, the order of events, and that a stream folds to the body however the reply was cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.capture.collect import Collector
from agentworld.dialects.dialect import RESPONSES, dialect_at
from agentworld.dialects.exchange import Choice, Delta, Reply, Request, ToolCallDelta
from agentworld.dialects.responses import parse
from agentworld.dialects.responses_items import unseal
from agentworld.dialects.responses_reply import ResponsesStream, error_event, response_body
from agentworld.errors import ContextLengthError, EngineError
from agentworld.records import FunctionCall, Message, ToolCall, Usage

ONE = f"exc_{'1' * 26}"
ID = f"resp_{ONE}"
TOOLS = [
    {"type": "function", "name": "look", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch"},
]
REQUEST = parse({"input": "hi", "tools": TOOLS, "metadata": {"a": "b"}, "instructions": "be kind"})
SEALED = parse({"input": "hi", "tools": TOOLS, "include": ["reasoning.encrypted_content"], "top_logprobs": 0})
SUMMARIZED = parse({"input": "hi", "tools": TOOLS, "reasoning": {"summary": "auto"}})
LOGPROBS = parse({"input": "hi", "include": ["message.output_text.logprobs"]})


def reply(finish: str = "stop", entries: list[dict[str, Any]] | None = None, **message: Any) -> Reply:
    choice = Choice(index=0, message=Message(role="assistant", **message), finish_reason=finish, entries=entries)
    return Reply(reply_id=ID, model="m", created=1, choices=[choice], prompt_ids=[1, 2], usage=Usage(2, 3))


def call(name: str = "look", arguments: str = '{"at": 1}', call_id: str = "c1") -> ToolCall:
    return ToolCall(id=call_id, function=FunctionCall(name, arguments))


def events(data: bytes) -> list[dict[str, Any]]:
    """The events, each with its name and its data agreeing, numbered from 0."""
    out = []
    for block in data.decode().split("\n\n")[:-1]:
        name, body = block.split("\n")
        event = json.loads(body.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == len(out)
        out.append(event)
    return out


def stream(deltas: list[Delta], end: Reply, request: Request = REQUEST) -> list[dict[str, Any]]:
    writer = ResponsesStream(request, ID, "m", 1)
    return events(b"".join(writer.delta(delta) for delta in deltas) + writer.finish(end))


def folded(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The response that a client builds from the events; checks their order on the way."""
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    output: list[dict[str, Any]] = []
    growing: dict[str, Any] = {}
    for event in found[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert not growing
            assert event["output_index"] == len(output)
            growing = dict(event["item"])
            continue
        assert event["output_index"] == len(output)
        if kind == "output_item.done":
            expected = {**growing, **({"status": event["item"]["status"]} if "status" in growing else {})}
            sealed = event["item"].get("encrypted_content")
            assert event["item"] == {**expected, **({"encrypted_content": sealed} if sealed else {})}
            output.append(event["item"])
            growing = {}
            continue
        assert event["item_id"] == growing["id"]
        if kind == "reasoning_summary_part.added":
            growing["summary"] = [dict(event["part"])]
        elif kind == "reasoning_summary_text.delta":
            growing["summary"][event["summary_index"]]["text"] += event["delta"]
        elif kind in ("reasoning_summary_text.done", "reasoning_summary_part.done"):
            assert growing["summary"][0]["text"] == event.get("text", (event.get("part") or {}).get("text"))
        elif kind == "content_part.added":
            growing["content"] = [dict(event["part"])]
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            growing["content"][0]["text"] += event["delta"]
            if kind == "output_text.delta":
                growing["content"][0]["logprobs"] = growing["content"][0]["logprobs"] + event["logprobs"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert growing["content"][0]["text"] == event["text"]
            if kind == "output_text.done":
                growing["content"][0]["logprobs"] = event["logprobs"]
        elif kind == "content_part.done":
            assert growing["content"] == [event["part"]]
        elif kind in ("function_call_arguments.delta", "custom_tool_call_input.delta"):
            growing["input" if "custom" in kind else "arguments"] += event["delta"]
        else:
            name = "input" if "custom" in kind else "arguments"
            assert kind in ("function_call_arguments.done", "custom_tool_call_input.done")
            assert growing[name] == event[name]
    assert not growing
    last = found[-1]
    assert last["type"] == f"response.{last['response']['status']}"
    assert last["response"]["output"] == output
    response: dict[str, Any] = last["response"]
    return response


def test_the_body_repeats_what_was_asked() -> None:
    body = response_body(REQUEST, reply(content="hello"))
    assert (body["id"], body["object"], body["status"], body["model"], body["created_at"]) == (
        *(ID, "response", "completed", "m"),
        1,
    )
    assert (body["tools"], body["metadata"], body["instructions"]) == (TOOLS, {"a": "b"}, "be kind")
    assert body["usage"]["total_tokens"] == 5
    assert "sealed" not in body
    assert [item["content"][0]["text"] for item in body["output"]] == ["hello"]


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_how_replies_end(finish: str, status: str, reason: Any) -> None:
    body = response_body(REQUEST, reply(finish, content="x"))
    assert (body["status"], body["incomplete_details"], body["output"][-1]["status"]) == (status, reason, status)


def test_a_call_that_was_cut_says_so() -> None:
    end = reply("length", tool_calls=(call(), call(arguments='{"at', call_id="c2")))
    for body in (response_body(REQUEST, end), folded(stream([], end))):
        assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]
        assert body["status"] == "incomplete"


def test_calls_come_with_the_end_only() -> None:
    writer = ResponsesStream(REQUEST, ID, "m", 1)
    piece = Delta(tool_calls=(ToolCallDelta(0, "c1", "look", '{"at": 1}'),), ids=[1])
    assert [event["type"] for event in events(writer.delta(piece))] == ["response.created", "response.in_progress"]
    end = [event["type"] for event in stream([piece], reply("tool_calls", tool_calls=(call(),)))[2:]]
    assert end == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_nothing_goes_out_before_there_is_something() -> None:
    assert ResponsesStream(REQUEST, ID, "m", 1).delta(Delta()) == b""


def test_thinking_can_be_carried_sealed() -> None:
    end = reply(content="x", reasoning="hm")
    for body in (response_body(SEALED, end), folded(stream([Delta(reasoning="hm"), Delta(text="x")], end, SEALED))):
        assert unseal(body["output"][0]["encrypted_content"]) == "hm"
    assert "encrypted_content" not in response_body(REQUEST, end)["output"][0]


def test_a_summary_that_is_asked_for_is_the_whole_thinking() -> None:
    end = reply(content="x", reasoning="hm")
    for body in (
        response_body(SUMMARIZED, end),
        folded(stream([Delta(reasoning="h"), Delta(reasoning="m"), Delta(text="x")], end, SUMMARIZED)),
    ):
        assert body["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
        assert "content" not in body["output"][0]
        assert body["reasoning"] == {"effort": None, "summary": "auto"}
        again = parse({"input": [{"role": "user", "content": "hi"}, *body["output"]]})
        assert again.messages[1] == end.choices[0].message


def test_think_answer_think_keeps_its_order() -> None:
    deltas = [Delta(reasoning="a"), Delta(text="b"), Delta(reasoning="c"), Delta(text="d")]
    body = folded(stream(deltas, reply(content="bd", reasoning="ac")))
    assert [(item["type"], item["content"][0]["text"]) for item in body["output"]] == [
        ("reasoning", "a"),
        ("message", "b"),
        ("reasoning", "c"),
        ("message", "d"),
    ]
    again = parse({"input": [{"role": "user", "content": "hi"}, *body["output"], {"role": "user", "content": "x"}]})
    assert again.messages[1] == Message(role="assistant", content="bd", reasoning="ac")


def test_an_empty_reply_is_an_empty_text() -> None:
    end = reply(content="")
    assert folded(stream([], end)) == response_body(REQUEST, end)


def test_a_failure_in_the_stream_is_a_failed_response() -> None:
    writer = ResponsesStream(REQUEST, ID, "m", 1)
    found = events(writer.delta(Delta(text="a")) + writer.fail(EngineError("it broke")))
    assert found[-1]["type"] == "response.failed"
    assert found[-1]["response"]["status"] == "failed"
    assert found[-1]["response"]["error"] == {"code": "engine_error", "message": "it broke"}
    early = events(ResponsesStream(REQUEST, ID, "m", 1).fail(EngineError("it broke")))
    assert [event["type"] for event in early] == ["response.created", "response.in_progress", "response.failed"]


def test_a_failure_before_the_stream_is_an_error_event() -> None:
    (event,) = events(error_event(ContextLengthError("too long", path="input")))
    assert (event["type"], event["code"], event["param"]) == ("error", "context_length_exceeded", "input")


def test_paths_speak_their_dialect() -> None:
    assert dialect_at("/t/t1/v1/responses") is dialect_at("/v1/responses/resp_1") is RESPONSES


ENTRY = st.builds(lambda token: {"token": token, "logprob": -0.5, "bytes": [], "top_logprobs": []}, st.text(max_size=2))
PIECES = st.lists(
    st.tuples(st.sampled_from(["reasoning", "text"]), st.text(max_size=4), st.lists(ENTRY, max_size=2)), max_size=8
)
CALLS = st.lists(st.tuples(st.sampled_from(["look", "patch"]), st.text(max_size=6)), max_size=3)


@given(PIECES, CALLS, st.sampled_from(["stop", "length"]), st.data())
def test_a_stream_folds_to_the_body_however_it_is_cut(
    pieces: list[tuple[str, str, list[dict[str, Any]]]], calls: list[tuple[str, str]], finish: str, data: st.DataObject
) -> None:
    """Thinking first, then text, then calls, each cut anywhere; through the collector, as in the gateway."""
    deltas = [
        Delta(ids=[1], entries=entries or None, **{kind: text})
        for kind, text, entries in sorted(pieces, key=lambda piece: piece[0] == "text")
    ]
    for at, (name, text) in enumerate(calls):
        cut = data.draw(st.integers(0, len(text)))
        deltas.append(Delta(tool_calls=(ToolCallDelta(at, f"c{at}", name, text[:cut]),)))
        deltas.append(Delta(tool_calls=(ToolCallDelta(at, None, None, text[cut:]),)))
    deltas.append(Delta(finish_reason=finish, usage=Usage(1, 2)))
    for request in (REQUEST, SEALED, SUMMARIZED, LOGPROBS):
        request = REQUEST if calls and request is LOGPROBS else request
        collector, writer, sent = Collector(), ResponsesStream(request, ID, "m", 1), b""
        for delta in deltas:
            seen = collector.feed(delta)
            assert seen is not None
            sent += writer.delta(seen)
        end = Reply(reply_id=ID, model="m", created=1, choices=collector.choices(), usage=collector.usage)
        assert folded(events(sent + writer.finish(end))) == response_body(request, end)
