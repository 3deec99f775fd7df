"""Traces: what each encoding and each convention says, who continues whom, and what is wrong with what is left out."""

import base64
import json
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentworld.ingest.files import BytesEntry
from agentworld.ingest.formats import get_format
from agentworld.ingest.reading import read_path
from agentworld.ingest.spans.assembling import Assembly
from agentworld.ingest.spans.call_ids import with_ids
from agentworld.ingest.spans.conventions import node_of
from agentworld.ingest.spans.conversation import Conversation
from agentworld.ingest.spans.node import Span, SpanEvent
from agentworld.ingest.spans.observed import read_call
from agentworld.ingest.spans.otlp_json import spans_in
from agentworld.ingest.spans.protobuf import message
from agentworld.ingest.spans.runs import run_of
from agentworld.records import FunctionCall, Message, ToolCall
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures" / "otlp"


def read(*documents, name="x.jsonl"):
    """Runs and notes of documents, or of bytes."""
    data = (
        documents[0] if isinstance(documents[0], bytes) else b"\n".join(json.dumps(each).encode() for each in documents)
    )
    notes = []
    return list(get_format("otlp").runs([BytesEntry(data, name)], notes.append)), notes


def test_a_trace_with_a_sub_agent_a_failed_call_and_a_last_result():
    (run,), _ = read_path("otlp", FIXTURES / "genai.json")

    assert lineage(run) == [
        "0 <- - planner: 2 => assistant(null; trains)",
        "1 <- 0 planner: 4 => assistant(null; ask_weather)",
        "2 <- - subagent weather: 1 => assistant(sunny)",
        "3 <- 1 planner: 6 => assistant(Take the 09:12 and walk.; book)",
    ]
    assert [said(message) for message in run.trailing] == ['tool c-3({"seat": "12A"})']
    assert (run.native_id, run.agent, run.user, run.status) == ("a1" * 16, "planner", "u-1", "finished")
    assert (run.metadata["session"], run.metadata["failed_calls"]) == ("talk-7", 1)
    first = run.steps[0]
    assert (first.model, first.requested_model, first.finish_reason) == ("small-1-2026", "small-1", "tool_calls")
    assert (first.usage.prompt_tokens, first.sampling.temperature, first.latency_ms) == (31, 0.5, 1000.0)
    assert first.tools[0]["function"]["parameters"]["required"] == ["to"]
    (reward,), (label,) = run.rewards, run.feedback
    assert (reward.name, reward.value, reward.step, reward.details) == ("short", 1.0, "2", {"comment": "one word"})
    assert (label.name, label.value, label.step) == ("tone", "plain", "2")


def test_protobuf_says_what_json_says():
    document = json.loads((FIXTURES / "genai.json").read_text())
    plain, plain_notes = read(document)
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    packed = ParseDict(document, ExportTraceServiceRequest()).SerializeToString()
    runs, notes = read(packed, name="x.binpb")

    assert [replace(run, file="x.jsonl") for run in runs] == plain
    assert [note.why for note in notes] == [note.why for note in plain_notes]
    cut, notes = read(packed[:-20], name="x.binpb")
    assert cut == []
    assert "ends too early" in notes[0].why


def test_one_broken_span_of_protobuf_fails_alone():
    deep = message((1, b"end"))
    for _ in range(80):
        deep = message((5, message((1, deep))))
    spans = [
        message((1, b"\1" * 16), (2, bytes([each]) * 8), (5, b"chat"), (9, pair))
        for each, pair in (
            (1, message((1, b"deep"), (2, deep))),
            (
                2,
                message((1, b"gen_ai.output.messages"), (2, message((1, b'[{"role": "assistant", "parts": ["Hi"]}]')))),
            ),
        )
    ]
    runs, notes = read(message((1, message((2, message(*((2, each) for each in spans)))))), name="x.pb")

    assert [lineage(run) for run in runs] == [["0 <- -: 0 => assistant(Hi)"]]
    assert [(note.place, note.lost) for note in notes] == [("resource_spans[0].scope_spans[0].spans[0]", True)]


def test_what_is_malformed_is_told_with_its_place_and_the_rest_is_read():
    (run,), notes = read_path("otlp", FIXTURES / "faults.jsonl")

    assert [said(step.response_message) for step in run.steps] == [
        "assistant(Yes.)",
        "assistant(Cut.)",
        "assistant(Seen.)",
    ]
    spans = "line 1.resourceSpans[0].scopeSpans[0].spans"
    assert {(note.place, note.why.partition(";")[0].partition(" are ")[0]) for note in notes if note.lost} == {
        (f"{spans}[0].attributes", "attributes without a key"),
        (f"{spans}[1]", "the call of a model has no messages: its content was not recorded"),
        (f"{spans}[2].gen_ai.input.messages", "these should be messages, but their JSON is cut or broken"),
        (f"{spans}[3].gen_ai.input.messages[0].parts[3]", "a content part is an object, not a number"),
        (f"{spans}[3].gen_ai.output.messages[0].parts[1]", "the tool call names no tool"),
        (f"{spans}[4]", "a span is an object"),
        ("line 1.resourceSpans[0].scopeSpans[1].spans[0].traceId", "the id is neither hex nor base64 of its length"),
        ("line 1.resourceSpans[0].scopeSpans[1].spans[0].attributes", "attributes"),
        ("line 2", "the JSON ends too early, after 33 bytes"),
    }


def test_scores_are_on_the_nearest_call_and_a_second_number_is_told():
    def made(own, parent, **values):
        said = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
        times = {"startTimeUnixNano": str(10**18 + own), "endTimeUnixNano": str(10**18 + own)}
        return {"traceId": "ab" * 16, "spanId": f"{own:016x}", "parentSpanId": parent, "attributes": said, **times}

    def call(own, parent, text):
        reply = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])
        return made(own, parent, **{"gen_ai.operation.name": "chat", "gen_ai.output.messages": reply})

    def judged(own, parent, value):
        span = made(own, f"{parent:016x}", **{"gen_ai.evaluation.name": "acc"})
        span["attributes"].append({"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": value}})
        return span

    spans = [
        *(made(1, ""), call(2, f"{1:016x}", "A"), call(3, f"{1:016x}", "B"), call(4, f"{3:016x}", "B")),
        *(judged(5, 2, 0.1), judged(6, 3, 0.2), made(7, f"{4:016x}"), judged(8, 7, 0.2), judged(9, 7, 0.3)),
        judged(10, 1, 0.9),
    ]
    (run,), notes = read({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})

    assert [(reward.step, reward.value) for reward in run.rewards] == [("0", 0.1), ("1", 0.2), (None, 0.9)]
    assert [(note.place[-8:], note.why, note.lost) for note in notes if "score" in note.why] == [
        ("spans[7]", "the score 'acc' is '0.2' already; it is kept once", False),
        ("spans[8]", "the score 'acc' is '0.2' already; '0.3' is not kept", True),
    ]


def test_spans_of_one_trace_come_from_several_files_in_any_order():
    runs, _ = read_path("otlp", FIXTURES / "split")
    backwards = [
        BytesEntry(file.read_bytes(), file.name) for file in sorted((FIXTURES / "split").iterdir(), reverse=True)
    ]

    assert [lineage(run) for run in runs] == [
        [
            "0 <- - counter: 1 => assistant(One.)",
            "1 <- 0 counter: 3 => assistant(Two.)",
            "2 <- - subagent counter: 2 => assistant(Good.)",
        ]
    ]
    (again,) = get_format("otlp").runs(backwards, lambda note: None)
    assert lineage(again) == lineage(runs[0])


def test_more_spans_than_may_wait():
    notes = []
    assembly = Assembly(lambda place, why, **_: notes.append(why), most=1000)
    spans = [
        Span(
            trace_id=trace,
            span_id=str(index),
            attributes={"gen_ai.output.messages": '[{"role": "assistant", "content": "x"}]'},
        )
        for index, trace in enumerate(["a", "b", "b", "a"])
    ]
    left = [trace.trace_id for span in spans for trace in assembly.add(span)]

    assert left == ["a", "b"]
    (rest,) = assembly.rest()
    assert run_of(rest, lambda *_, **__: None).native_id == "a.2"
    assert notes == ["more of the trace 'a' comes after 1000 characters of others; it becomes a run of its own"]


CALL = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}]
LANGCHAIN = {"lc": 1, "type": "constructor", "id": ["x", "AIMessage"]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Hi", ["user(Hi)"]),
        ({"messages": [{"role": "human", "content": "Hi"}]}, ["user(Hi)"]),
        ([["system", "Be kind"], ["human", "Hi"]], ["system(Be kind)", "user(Hi)"]),
        ([{"type": "ai", "data": {"content": "Yo"}}], ["assistant(Yo)"]),
        (
            [{**LANGCHAIN, "kwargs": {"content": "", "tool_calls": [{"name": "f", "args": {}, "id": "c"}]}}],
            ["assistant(; f)"],
        ),
        ([{**LANGCHAIN, "kwargs": {"content": "", "additional_kwargs": {"tool_calls": CALL}}}], ["assistant(; f)"]),
        (
            [
                {"role": "assistant", "content": None, "tool_calls": CALL},
                {"role": "tool", "tool_call_id": "c", "content": ""},
            ],
            ["assistant(null; f)", "tool c()"],
        ),
        (
            [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}],
            ["assistant(null; f)"],
        ),
        (
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c", "content": "4"},
                        {"type": "text", "text": "So?"},
                    ],
                }
            ],
            ["tool c(4)", "user(So?)"],
        ),
        (
            [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "4"},
            ],
            ["assistant(Yes; f)", "tool c(4)"],
        ),
        (
            [
                {
                    "role": "model",
                    "parts": [
                        {"text": "a"},
                        {"text": "b", "thought": True},
                        {"functionCall": {"name": "f", "args": {}}},
                    ],
                }
            ],
            ["assistant(a; f)"],
        ),
        (
            [
                {
                    "role": "tool",
                    "content": [
                        {"type": "tool-result", "toolCallId": "c", "output": {"type": "json", "value": {"n": 4}}}
                    ],
                }
            ],
            ['tool c({"n": 4})'],
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": [{"text": "So"}, {"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}],
                },
                {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "4"}]}}]},
            ],
            ["assistant(So; f)", "tool c(4)"],
        ),
        ([{"role": "robot", "content": "beep"}, 7, None], ["user(beep)"]),
    ],
)
def test_messages_of_many_shapes(given, expected):
    assert [said(message) for message in Conversation(lambda *_, **__: None).messages(given, "$")] == expected


def test_calls_without_ids_get_some_by_their_place_and_results_find_theirs():
    call = ToolCall(id="", function=FunctionCall("f", "{}"))
    other = ToolCall(id="", function=FunctionCall("g", "{}"))
    answers = [Message(role="tool", content=each, tool_call_id="", name=each) for each in ("g", "f")]
    told = with_ids(
        [Message(role="assistant", tool_calls=(call, other)), *answers, Message(role="assistant", tool_calls=(call,))]
    )

    assert [each.id for each in told[0].tool_calls] == ["call_0", "call_1"]
    assert [message.tool_call_id for message in told[1:3]] == ["call_1", "call_0"]
    assert told[3].tool_calls[0].id == "call_2"


def test_a_call_told_twice_is_the_one_that_has_messages():
    given = [{"role": "user", "content": "Hi"}]
    outer = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(given),
        "gen_ai.output.messages": '[{"role": "assistant", "content": "Yo"}]',
    }
    spans = [("1", "", outer), ("2", "1", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})]
    assembly = Assembly(lambda *_, **__: None)
    for own, parent, values in spans:
        list(assembly.add(Span(trace_id="t", span_id=own, parent_id=parent, attributes=values)))
    notes = []
    (trace,) = assembly.rest()
    run = run_of(trace, lambda place, why, **_: notes.append(why))

    assert (lineage(run), notes) == (["0 <- -: 1 => assistant(Yo)"], [])


@pytest.mark.parametrize(
    "events",
    [
        [
            ("user", {"content": "Hi"}),
            ("choice", {"finish_reason": "stop", "message": '{"role": "assistant", "content": "Yo"}'}),
        ],
        [
            ("user", {"content": '[{"text": "Hi"}]'}),
            ("choice", {"finish_reason": "stop", "message": '[{"text": "Yo"}]'}),
        ],
        [
            ("user", {"gen_ai.event.content": '{"content": "Hi"}'}),
            ("choice", {"gen_ai.event.content": '{"finish_reason": "stop", "message": {"content": "Yo"}}'}),
        ],
    ],
)
def test_messages_as_events(events):
    names = {"user": "gen_ai.user.message", "choice": "gen_ai.choice"}
    told = [SpanEvent(name=names[kind], attributes=values) for kind, values in events]
    call = node_of(Span(span_id="1", events=told), lambda *_, **__: None).call

    assert [said(message) for message in call.prompt] == ["user(Hi)"]
    assert [(said(reply.message), reply.finish_reason) for reply in call.replies] == [("assistant(Yo)", "stop")]


def test_a_reply_of_whatever_shape():
    shapes = {
        "choices": {"choices": [{"message": {"content": "A"}, "finish_reason": "stop"}, {"message": {"content": "B"}}]},
        "responses": {
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}]
        },
        "gemini": {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "A"}]}, "finish_reason": "MAX_TOKENS"}]
        },
        "anthropic": {"role": "assistant", "content": [{"type": "text", "text": "A"}], "stop_reason": "tool_use"},
        "langchain": {"generations": [[{"text": "A", "generation_info": {"finish_reason": "stop"}}]]},
        "whole": {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]},
        "text": "A",
        "nothing": {"answer": 4},
    }
    found = {
        name: [
            (reply.message.text, reply.finish_reason) for reply in read_call("Q", shape, lambda *_, **__: None).replies
        ]
        for name, shape in shapes.items()
    }

    assert found == {
        "choices": [("A", "stop"), ("B", None)],
        "responses": [("A", None)],
        "gemini": [("A", "length")],
        "anthropic": [("A", "tool_calls")],
        "langchain": [("A", "stop")],
        "whole": [("A", None)],
        "text": [("A", None)],
        "nothing": [],
    }


def test_rows_of_phoenix_flat_and_nested():
    asked = [{"message.role": "user", "message.content": "Hi"}]
    call = {"tool_call.id": "c", "tool_call.function.name": "f", "tool_call.function.arguments": "{}"}
    said_so = [{"message.role": "assistant", "message.tool_calls": [call]}]
    flat = {
        "name": "chat",
        "span_kind": "LLM",
        "context.trace_id": "5a" * 16,
        "context.span_id": "5b" * 8,
        "attributes.llm.input_messages": asked,
        "attributes.llm.output_messages": said_so,
    }
    nested = {
        "name": "chat",
        "context": {"trace_id": "5c" * 16, "span_id": "5d" * 8},
        "attributes": {
            "openinference": {"span": {"kind": "LLM"}},
            "llm": {"input_messages": asked, "output_messages": said_so, "token_count": {"prompt": 3}},
        },
    }
    runs, notes = read(flat, nested)

    assert [lineage(run) for run in runs] == [["0 <- -: 1 => assistant(null; f)"]] * 2
    assert (runs[1].steps[0].usage.prompt_tokens, notes) == (3, [])


def test_ids_and_numbers_in_every_spelling():
    span = {
        "trace_id": "0xAB" + "00" * 15,
        "spanId": "AAAAAAAAAAE=",
        "name": "x",
        "startTimeUnixNano": 1790000000500000000,
        "attributes": [
            {"key": "n", "value": {"int_value": "-3"}},
            {"key": "l", "value": {"arrayValue": {"values": [{"boolValue": True}, {"doubleValue": "NaN"}]}}},
        ],
    }
    (found,) = spans_in(span, "$", lambda *_, **__: None)

    assert (found.trace_id, found.span_id, found.start) == ("ab" + "00" * 15, "0" * 15 + "1", 1790000000.5)
    assert found.attributes == {"n": -3, "l": [True, None]}
