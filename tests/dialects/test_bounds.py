"""What large requests cost: work grows with their size alone, and few bytes never stand for many."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from agentworld.dialects import chat, completions, messages, responses
from agentworld.dialects.exchange import Request
from agentworld.dialects.responses import Past, wanted
from agentworld.dialects.responses_items import item_id
from agentworld.errors import InvalidRequestError
from agentworld.records import Message

USER = {"role": "user", "content": "hello"}
ONE = f"exc_{'1' * 26}"
MANY = 400


def lines_run(work: Callable[[], Any]) -> int:
    """How many lines of Python run."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def results_of_messages(size: int) -> Request:
    calls = [{"type": "tool_use", "id": f"c{at}", "name": "look", "input": {}} for at in range(size)]
    results = [{"type": "tool_result", "tool_use_id": f"c{size - at - 1}", "content": "r"} for at in range(size)]
    talk = [USER, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    return messages.parse({"max_tokens": 5, "messages": talk})


def results_of_responses(size: int) -> Request:
    calls = [{"type": "function_call", "call_id": f"c{at}", "name": "look", "arguments": "{}"} for at in range(size)]
    results = [{"type": "function_call_output", "call_id": f"c{size - at - 1}", "output": "r"} for at in range(size)]
    return responses.parse({"input": [USER, *calls, *results]})


def results_of_chat(size: int) -> Request:
    calls = [{"id": f"c{at}", "function": {"name": "look", "arguments": "{}"}} for at in range(size)]
    results = [{"role": "tool", "tool_call_id": f"c{at}", "content": "r"} for at in range(size)]
    return chat.parse({"messages": [USER, {"role": "assistant", "tool_calls": calls}, *results]})


def edits(size: int) -> Request:
    given = [{"type": "clear_thinking_20251015"} for _ in range(size)]
    return messages.parse({"max_tokens": 5, "messages": [USER] * size, "context_management": {"edits": given}})


@pytest.mark.parametrize("parse", [results_of_messages, results_of_responses, results_of_chat, edits])
def test_twice_as_much_is_twice_the_work(parse: Callable[[int], Request]) -> None:
    parse(1)  # What is done once.
    assert lines_run(lambda: parse(2 * MANY)) < 2.2 * lines_run(lambda: parse(MANY))


def test_results_stand_in_the_order_of_their_calls_whatever_their_number() -> None:
    for request in (results_of_messages(MANY), results_of_responses(MANY)):
        assert [message.tool_call_id for message in request.messages[2:]] == [f"c{at}" for at in range(MANY)]


def test_a_stored_item_stands_in_the_input_once() -> None:
    """A few bytes that are replaced by a long reply would make a small body an endless one."""
    past = {ONE: Past(exchange_id=ONE, messages=(), reply=Message(role="assistant", content="long"))}
    reference = {"type": "item_reference", "id": item_id("msg", ONE, 0)}
    assert len(responses.parse({"input": [reference, USER]}, past).messages) == 2
    with pytest.raises(InvalidRequestError) as caught:
        responses.parse({"input": [reference, USER, reference]}, past)
    assert caught.value.path == "input[2].id"
    assert wanted({"input": [reference, reference]}) == [ONE]


TALK: dict[str, Any] = {"messages": [USER]}
SAID: dict[str, Any] = {"max_tokens": 5, "messages": [USER]}


@pytest.mark.parametrize(
    ("parse", "body", "name", "most"),
    [
        (chat.parse, TALK, "stop", lambda size: ["x"] * size),
        (completions.parse, {"prompt": "x"}, "stop", lambda size: ["x"] * size),
        (responses.parse, {"input": "x"}, "stop", lambda size: ["x"] * size),
        (messages.parse, SAID, "stop_sequences", lambda size: ["x"] * size),
        (chat.parse, TALK, "chat_template_kwargs", lambda size: {str(at): at for at in range(size)}),
        (responses.parse, {"input": "x"}, "chat_template_kwargs", lambda size: {str(at): at for at in range(size)}),
    ],
)
def test_at_most_64_stops_and_settings_of_a_template(
    parse: Callable[[dict[str, Any]], Request], body: dict[str, Any], name: str, most: Callable[[int], Any]
) -> None:
    parse({**body, name: most(64)})
    with pytest.raises(InvalidRequestError) as caught:
        parse({**body, name: most(65)})
    assert caught.value.path == name


def test_at_most_1024_ids() -> None:
    for name, made in (
        ("stop_token_ids", lambda size: list(range(size))),
        ("logit_bias", lambda size: dict.fromkeys(map(str, range(size)), 1)),
    ):
        chat.parse({**TALK, name: made(1024)})
        with pytest.raises(InvalidRequestError) as caught:
            chat.parse({**TALK, name: made(1025)})
        assert caught.value.path == name


def test_at_most_100_000_messages() -> None:
    assert chat.MAX_MESSAGES == 100_000
    many = [USER] * 100_001
    for parse, body, path in (
        (chat.parse, {"messages": many}, "messages"),
        (messages.parse, {"max_tokens": 5, "messages": many}, "messages"),
        (responses.parse, {"input": many}, "input"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            parse(body)
        assert (caught.value.path, "at most 100000" in caught.value.message) == (path, True)


@pytest.mark.parametrize("key", ["", "-1", "05", "٣", "4294967296", "9" * 5000, "1.0", " 1", "1\n"])
def test_a_bias_is_on_a_token_id_as_engines_read_it(key: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat.parse({**TALK, "logit_bias": {key: 1}})
    assert caught.value.path == "logit_bias"
    assert len(caught.value.message) < 100


def test_ids_have_32_bits() -> None:
    sampling = chat.parse({**TALK, "logit_bias": {"0": 1, "4294967295": 2}, "stop_token_ids": [2**32 - 1]}).sampling
    assert (sampling.logit_bias, sampling.stop_token_ids) == ({"0": 1.0, "4294967295": 2.0}, (2**32 - 1,))
    with pytest.raises(InvalidRequestError):
        chat.parse({**TALK, "stop_token_ids": [2**32]})


@pytest.mark.parametrize("name", ["temperature", "top_p", "presence_penalty", "min_p"])
@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf")])
def test_numbers_too_long_for_a_float_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat.parse({**TALK, name: value})
    assert caught.value.path == name
