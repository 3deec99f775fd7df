"""What large requests cost: work grows with their size alone, and few bytes never stand for many."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from agentworld.dialects import chat, messages, responses
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
