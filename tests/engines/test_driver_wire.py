"""Replies of engines that differ from the book."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentworld.engines.openai_wire import decode, engine_error, finite, read_body
from agentworld.engines.redact import Redactor
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


def test_numbers_too_long_for_a_float_are_none() -> None:
    assert (finite(-(10**310)), finite(10**310)) == (None, None)


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(EngineError, match="UTF-8"):
        decode(b'{"a": "\xff"}')


def test_json_with_nan_is_read() -> None:
    assert decode(b'{"a": NaN, "b": -Infinity}')["b"] == float("-inf")
    for data in (b"nonsense", b"[]", b"\xff"):
        with pytest.raises(EngineError):
            decode(data)


def test_ids_where_proxies_put_them() -> None:
    delta = chat({"message": {"content": "x"}, "provider_specific_fields": {"token_ids": [1, 2]}})
    assert delta.ids == [1, 2]
    message = {"content": "x", "provider_specific_fields": {"token_ids": [3]}}
    assert chat({"message": message}, provider_specific_fields={"prompt_token_ids": [4]}).ids == [3]
    assert chat({"message": message}, provider_specific_fields={"prompt_token_ids": [4]}).prompt_ids == [4]


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
    calls = [{"function": {"name": "f", "arguments": {"a": 1}}}, {"index": 5, "function": {"arguments": None}}]
    delta = chat({"delta": {"tool_calls": calls}})
    assert [(call.index, call.name, call.arguments) for call in delta.tool_calls] == [
        (0, "f", '{"a":1}'),
        (5, None, ""),
    ]


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": [-1]},
        {"token_ids": [2**32]},
        {"token_ids": ["a"]},
        {"token_ids": [None]},
        {"token_ids": [1.5]},
        {"token_ids": [True]},
        {"token_ids": 5},
        {"prompt_token_ids": [-4]},
        {"provider_specific_fields": {"token_ids": ["a"]}},
        {"provider_specific_fields": []},
        {"index": "0"},
        {"index": -1},
        {"index": 2**64},
        {"finish_reason": 5},
        {"finish_reason": {"a": 1}},
        {"stop_reason": [1]},
        {"stop_reason": True},
        {"version_spans": "x"},
        {"version_spans": [["x", 1]]},
        {"version_spans": [[1]]},
        {"version_spans": [[0, 1], [5, 2], [3, 1]]},
        {"version_spans": [[0, 2**63]]},
        {"version_spans": [[-1, 0]]},
        {"version_spans": [[0, True]]},
        {"message": "hello"},
        {"message": {"content": [{"type": "text", "text": "x"}]}},
        {"message": {"content": 5}},
        {"message": {"reasoning": 5}},
        {"message": {"tool_calls": "x"}},
        {"message": {"tool_calls": ["x"]}},
        {"message": {"tool_calls": [{"function": "x"}]}},
        {"message": {"tool_calls": [{"id": 5}]}},
        {"message": {"tool_calls": [{"function": {"name": 7}}]}},
        {"message": {"tool_calls": [{"index": -1}]}},
        {"logprobs": [1]},
        {"logprobs": {"content": [None]}},
        {"logprobs": {"content": ["x"]}},
        {"logprobs": {"content": [{"logprob": "x"}]}},
        {"logprobs": {"content": [{"logprob": True}]}},
        {"logprobs": {"content": [{"token": 5}]}},
        {"logprobs": {"content": [{"top_logprobs": [5]}]}},
        5,
    ],
    ids=str,
)
def test_a_field_of_the_wrong_kind_is_a_fault_of_the_engine(choice: Any) -> None:
    with pytest.raises(EngineError, match="cannot be used") as caught:
        chat(choice)
    assert caught.value.path is None  # The caller would look for it in its own request.


@pytest.mark.parametrize(
    "body",
    [
        {"choices": {"a": 1}},
        {"usage": [1]},
        {"usage": "text"},
        {"usage": {"prompt_tokens": "abc"}},
        {"usage": {"completion_tokens": 2**63}},
        {"usage": {"prompt_tokens": -2}},
        {"usage": {"prompt_tokens": float("inf")}},
        {"prompt_token_ids": ["a"]},
        {"prompt_token_ids": [-4]},
        {"policy_version": 2**63},
        {"policy_version": -1},
        {"policy_version": "1"},
        {"policy_run": 5},
        {"logprobs_mode": 5},
        {"version_spans": [[1]]},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_so_is_one_that_holds_for_the_call(body: dict[str, Any], kind: str) -> None:
    with pytest.raises(EngineError, match="cannot be used"):
        read_body({"choices": [{}], **body}, kind=kind, entries=False)


@pytest.mark.parametrize(
    "choice",
    [
        {"text": 5},
        {"text": ["x"]},
        {"logprobs": "x"},
        {"logprobs": {"token_logprobs": "x"}},
        {"logprobs": {"token_logprobs": ["x"]}},
        {"logprobs": {"token_logprobs": [-1.0], "top_logprobs": ["x"]}},
    ],
    ids=str,
)
def test_completions_are_checked_too(choice: dict[str, Any]) -> None:
    with pytest.raises(EngineError):
        read_body({"choices": [choice]}, kind="completions", entries=True)


def test_ids_at_the_bounds_are_taken() -> None:
    assert chat({"token_ids": [0, 2**32 - 1]}).ids == [0, 2**32 - 1]
    assert chat({"token_ids": []}, policy_version=2**63 - 1).policy_version == 2**63 - 1


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(EngineError, match="surrogate"):
        decode(b'{"choices": [{"message": {"content": "\\ud800"}}]}')
    assert decode(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_arguments_that_nest_without_end_are_refused() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(EngineError, match="depth"):
        chat({"message": {"tool_calls": [{"function": {"name": "f", "arguments": deep}}]}})
    with pytest.raises(EngineError, match="deep"):
        decode(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_keys_are_taken_out_of_what_an_engine_says() -> None:
    redactor = Redactor("sk-secret-1")
    # The message is cut after 2000 characters: half of the key would stay if that came first.
    for text in ("bad key sk-secret-1", "x" * 1995 + "sk-secret-1", "authorization: BEARER other-key-2"):
        for body in ({"error": {"message": text, "param": "sk-secret-1"}}, {"detail": text}, text):
            for status in (400, 401, 404, 429, 500, 503):
                told = engine_error(status, body, redactor)
                for secret in ("sk-se", "other-key-2"):
                    assert secret not in told.one_line()
                    assert secret not in str(told)
    with pytest.raises(EngineError) as caught:
        read_body({"error": {"message": "sk-secret-1"}}, kind="chat", entries=False, redactor=redactor)
    assert "sk-secret" not in msgspec.json.encode(caught.value.to_dict()).decode()
    with pytest.raises(EngineError) as caught:
        decode(b"x" * 75 + b"sk-secret-1", redactor)
    assert "sk-s" not in caught.value.message


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


@pytest.mark.parametrize("place", ["message", "delta"])
def test_a_refusal_is_what_was_said(place: str) -> None:
    body = {"choices": [{"index": 0, place: {"role": "assistant", "content": None, "refusal": "I cannot."}}]}
    (delta,) = read_body(body, kind="chat", entries=False)
    assert delta.text == "I cannot."
