"""Replies of engines that differ from the book."""

from __future__ import annotations

from typing import Any

import pytest

from agentworld.engines.openai_wire import decode, engine_error, finite, read_body
from agentworld.errors import ContextLengthError, EngineError, InvalidRequestError
from agentworld.records import Usage, VersionSpan


def chat(choice: dict[str, Any], **body: Any) -> Any:
    (delta,) = read_body({"choices": [choice], **body}, kind="chat", entries=True)
    return delta


@pytest.mark.parametrize("value", [None, "x", True, float("nan"), float("inf"), float("-inf"), -9999.0, -10000])
def test_what_is_no_log_probability(value: Any) -> None:
    assert finite(value) is None


def test_log_probabilities() -> None:
    assert (finite(-1), finite(0.0)) == (-1.0, 0.0)


def test_json_with_nan_is_read() -> None:
    assert decode(b'{"a": NaN, "b": -Infinity}')["b"] == float("-inf")
    for data in (b"nonsense", b"[]", b"\xff"):
        with pytest.raises(EngineError):
            decode(data)


def test_ids_where_proxies_put_them() -> None:
    delta = chat({"message": {"content": "x"}, "provider_specific_fields": {"token_ids": [1, 2]}})
    assert delta.ids == [1, 2]


def test_both_spellings_of_reasoning() -> None:
    assert chat({"delta": {"reasoning": "a"}}).reasoning == "a"
    assert chat({"delta": {"reasoning_content": "a"}}).reasoning == "a"


def test_missing_fields_are_nothing() -> None:
    for choice in ({}, {"delta": {}}, {"delta": None}, {"delta": {"content": None, "tool_calls": None}}):
        delta = chat(choice)
        assert (delta.text, delta.tool_calls, delta.ids, delta.finish_reason) == ("", (), None, None)


def test_a_chunk_without_choices_carries_what_holds_for_the_call() -> None:
    (delta,) = read_body(
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}, kind="chat", entries=False
    )
    assert (delta.index, delta.usage) == (-1, Usage(3, 4))
    (delta,) = read_body({"choices": None}, kind="chat", entries=False)
    assert delta.index == -1


def test_versions() -> None:
    delta = chat({"delta": {}, "version_spans": [[0, 1], [5, 2]]}, policy_version=1, policy_run="r")
    assert delta.version_spans == (VersionSpan(0, 1), VersionSpan(5, 2))
    assert (delta.policy_version, delta.policy_run) == (1, "r")


def test_odd_tool_calls() -> None:
    calls = [{"function": {"name": "f", "arguments": {"a": 1}}}, {"index": 5, "function": {"arguments": None}}, "x"]
    delta = chat({"delta": {"tool_calls": calls}})
    assert [(call.index, call.name, call.arguments) for call in delta.tool_calls] == [
        (0, "f", '{"a":1}'),
        (5, None, ""),
    ]


def test_an_error_in_the_body_is_raised() -> None:
    with pytest.raises(EngineError, match="died"):
        read_body({"error": {"message": "died"}}, kind="chat", entries=False)
    with pytest.raises(InvalidRequestError):
        read_body({"error": {"message": "bad", "code": 400}}, kind="chat", entries=False)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "This model's maximum context length is 10 tokens", "code": 400}},
        {"error": {"message": "too long", "code": "context_length_exceeded", "param": "input"}},
        {"message": "prompt exceeds max_model_len", "code": 400},
    ],
)
def test_context_errors_in_their_spellings(body: Any) -> None:
    assert isinstance(engine_error(400, body), ContextLengthError)
