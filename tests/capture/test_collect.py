"""Putting replies together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from agentworld.capture import Collector
from agentworld.dialects import Delta, ToolCallDelta
from agentworld.dialects.exchange import listed
from agentworld.engines.whole_replies import WholeDelta
from agentworld.errors import EngineError
from agentworld.forest import joined_ids
from agentworld.records import Usage, VersionSpan
from tests.examples import examples


def collect(*deltas: Delta) -> Collector:
    collector = Collector()
    for delta in deltas:
        collector.feed(delta)
    return collector


def piece(index: int, id: str | None = None, name: str | None = None, arguments: str = "") -> Delta:
    return Delta(tool_calls=(ToolCallDelta(index=index, id=id, name=name, arguments=arguments),))


END = Delta(finish_reason="tool_calls")


def test_text_reasoning_and_ids_add_up() -> None:
    collector = collect(
        Delta(index=-1, usage=Usage(1, 1)),
        Delta(reasoning="h", ids=[1], logprobs=[-1.0], prompt_ids=[9]),
        Delta(reasoning="m", ids=[2, 3], logprobs=[-2.0, None]),
        Delta(text="x", ids=[], logprobs=[]),
        Delta(index=-1, usage=Usage(1, 3)),
        Delta(finish_reason="stop"),
    )
    (choice,) = collector.choices()
    assert (choice.message.reasoning, choice.message.content, choice.ids) == ("hm", "x", [1, 2, 3])
    assert (choice.logprobs, collector.prompt_ids, collector.usage) == ([-1.0, -2.0, None], [9], Usage(1, 3))


def test_content_is_null_only_beside_calls() -> None:
    (choice,) = collect(Delta(finish_reason="stop")).choices()
    assert choice.message.content == ""
    (choice,) = collect(piece(0, "a", "f", "{}"), END).choices()
    assert choice.message.content is None


def test_parallel_calls_by_index() -> None:
    collector = collect(
        piece(0, "a", "f", "{"), piece(1, "b", "g", "["), piece(0, arguments="}"), piece(1, arguments="]"), END
    )
    calls = collector.choices()[0].message.tool_calls
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("a", "f", "{}"),
        ("b", "g", "[]"),
    ]


def test_id_and_name_that_come_again_with_each_piece_are_one_call() -> None:
    collector = collect(piece(0, "a", "f", "{"), piece(0, "a", "f", "}"), END)
    (call,) = collector.choices()[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("f", "{}")


def test_parallel_calls_that_all_say_index_zero() -> None:
    collector = Collector()
    seen = [
        collector.feed(delta)
        for delta in (piece(0, "a", "f", "{}"), piece(0, "b", "f", "["), piece(0, "b", None, "]"), END)
    ]
    calls = collector.choices()[0].message.tool_calls
    assert [(call.id, call.function.arguments) for call in calls] == [("a", "{}"), ("b", "[]")]
    # And the caller is told positions that keep them apart.
    assert [delta.tool_calls[0].index for delta in seen[:3] if delta is not None] == [0, 1, 1]


def names_and_arguments(*pieces: Delta) -> list[tuple[str, str]]:
    calls = collect(*pieces, END).choices()[0].message.tool_calls
    return [(call.function.name, call.function.arguments) for call in calls]


TWO = [("look", '{"a":1}'), ("run", '{"b":2}')]


@pytest.mark.parametrize(
    "pieces",
    [
        (piece(0, None, "look", '{"a":1}'), piece(0, None, "run", '{"b":2}')),
        (piece(0, "a"), piece(0, None, "look", '{"a":1}'), piece(0, "b"), piece(0, None, "run", '{"b":2}')),
        (piece(0, "a", "look", '{"a"'), piece(0, None, "look", ":1}"), piece(1, "b", "run", '{"b":2}')),
        (piece(0, "a", "look", '{"a"'), piece(0, "other", None, ":1}"), piece(0, "b", "run", '{"b":2}')),
        (
            piece(0, "a", "look", "{"),
            piece(0, "b", "run", '{"b":'),
            piece(0, "a", None, '"a":1}'),
            piece(0, "b", None, "2}"),
        ),
        (piece(0, None, "look"), piece(0, "a", None, '{"a":1}'), piece(1, None, "run"), piece(1, "b", None, '{"b":2}')),
        (piece(0, "a", "lo"), piece(0, None, "ok", '{"a":1}'), piece(1, "b", "run", '{"b":2}')),
        (piece(0, "a", "look", '{"a":1}'), piece(0, "a", "run", '{"b":2}')),
    ],
)
def test_calls_that_can_be_told_apart_stay_apart(pieces: tuple[Delta, ...]) -> None:
    assert names_and_arguments(*pieces) == TWO


def test_two_calls_of_one_tool_by_their_ids() -> None:
    assert names_and_arguments(piece(0, "a", "f", "{}"), piece(0, "b"), piece(0, None, "f", "[]")) == [
        ("f", "{}"),
        ("f", "[]"),
    ]


def test_an_id_and_a_name_are_shown_once() -> None:
    collector = Collector()
    seen = [collector.feed(each) for each in (piece(0, "a", "f", "{"), piece(0, "a", "f", "}"))]
    assert [(each.tool_calls[0].id, each.tool_calls[0].name) for each in seen if each is not None] == [
        ("a", "f"),
        (None, None),
    ]


def test_a_choice_that_had_not_begun_is_none_of_an_aborted_reply() -> None:
    collector = collect(Delta(index=0), Delta(index=1), Delta(index=1, text="x", ids=[1]))
    assert [choice.index for choice in collector.choices(2, aborted=True)] == [1]


def test_a_call_without_id_gets_one() -> None:
    collector = Collector()
    delta = collector.feed(piece(0, None, "f", "{}"))
    collector.feed(END)
    assert delta is not None
    (call,) = collector.choices()[0].message.tool_calls
    assert delta.tool_calls[0].id == call.id
    assert call.id.startswith("call_")


def test_versions_as_they_change() -> None:
    collector = collect(
        Delta(ids=[1, 2], policy_version=3),
        Delta(ids=[3], policy_version=3),
        Delta(ids=[4], policy_version=4, finish_reason="stop"),
    )
    assert collector.choices()[0].version_spans == (VersionSpan(0, 3), VersionSpan(3, 4))
    collector = collect(Delta(ids=[1], policy_version=3, version_spans=(VersionSpan(0, 9),), finish_reason="stop"))
    assert collector.choices()[0].version_spans == (VersionSpan(0, 9),)


def test_only_pieces_with_ids_say_who_sampled_them() -> None:
    collector = collect(
        Delta(policy_version=2),
        Delta(ids=[1], policy_version=3),
        Delta(text="x", policy_version=9),
        Delta(ids=[2], policy_version=4),
        Delta(policy_version=3, finish_reason="stop"),
    )
    assert collector.choices()[0].version_spans == (VersionSpan(0, 3), VersionSpan(1, 4))
    # A reply without any ids, or without a version beside them, has what was said before its first word.
    collector = collect(Delta(policy_version=2), Delta(policy_version=3, text="x"), Delta(policy_version=9), END)
    assert collector.choices()[0].version_spans == (VersionSpan(0, 3),)
    collector = collect(Delta(policy_version=2), Delta(ids=[1], finish_reason="stop"))
    assert collector.choices()[0].version_spans == (VersionSpan(0, 2),)


def test_a_reply_that_was_broken_off_has_spans_of_what_came() -> None:
    spans = (VersionSpan(0, 3), VersionSpan(2, 4))
    for ids, kept in (([1, 2, 3], spans), ([1, 2], spans[:1]), ([], spans[:1])):
        collector = collect(Delta(ids=ids, text="x", version_spans=spans))
        assert collector.choices(aborted=True)[0].version_spans == kept
    # A whole one has what was said, which the pool checks.
    collector = collect(Delta(ids=[1], version_spans=spans, finish_reason="stop"))
    assert collector.choices()[0].version_spans == spans


def test_a_reply_of_two_runs_is_a_fault() -> None:
    collector = collect(Delta(ids=[1], policy_run="a"), Delta(ids=[2]), Delta(ids=[3], policy_run="a"), END)
    assert collector.faults == []
    collector.feed(Delta(index=-1, policy_run="b"))
    assert collector.faults == ["the engine spoke with the weights of two runs"]


@pytest.mark.parametrize(
    ("after", "fault"),
    [
        (Delta(ids=[2]), True),
        (Delta(text="more"), True),
        (Delta(), False),
        (Delta(index=-1, usage=Usage(1, 1)), False),
        (Delta(index=1, ids=[2], finish_reason="stop"), False),
        (Delta(finish_reason="stop"), False),
    ],
)
def test_what_comes_after_the_end_of_a_reply_is_a_fault(after: Delta, fault: bool) -> None:
    collector = collect(Delta(ids=[1], text="x", finish_reason="stop"), after)
    assert collector.faults == (["the engine went on after the end of its reply"] if fault else [])


def test_services_without_ids_may_name_a_finish_reason_with_each_piece() -> None:
    collector = collect(Delta(text="a", finish_reason="stop"), Delta(text="b", finish_reason="stop"))
    assert (collector.faults, collector.choices()[0].message.content) == ([], "ab")


def test_a_reply_without_end_is_an_error_unless_it_was_aborted() -> None:
    collector = collect(Delta(text="x", ids=[1]))
    with pytest.raises(EngineError, match="middle"):
        collector.choices()
    (choice,) = collector.choices(aborted=True)
    assert (choice.finish_reason, choice.message.content) == ("abort", "x")


def test_missing_choices_are_an_error() -> None:
    with pytest.raises(EngineError, match="1 of 2"):
        collect(Delta(text="x", finish_reason="stop")).choices(2)


def test_empty_until_something_is_sampled() -> None:
    assert collect(Delta(), Delta(index=-1)).empty
    assert not collect(Delta(ids=[1])).empty
    assert not collect(Delta(reasoning="x")).empty


_WHOLE = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["", "said"]),
        "reasoning": st.sampled_from(["", "thought"]),
        "ids": st.just([1, 2]),
        "logprobs": st.just([-1.0, -0.5]),
        "prompt_ids": st.just([9]),
        "finish_reason": st.sampled_from(["stop", "abort"]),
        "stop_reason": st.sampled_from([None, 3, "end"]),
        "policy_version": st.sampled_from([None, 0, 4]),
        "policy_run": st.sampled_from([None, "a"]),
        "logprobs_mode": st.sampled_from([None, "raw_logprobs"]),
        "usage": st.sampled_from([None, Usage(1, 2)]),
    }
)
_PIECES = st.lists(
    st.sampled_from(
        [
            Delta(index=-1, usage=Usage(3, 4), policy_run="b"),
            Delta(text="more"),
            Delta(text="other", ids=[5], logprobs=[None], policy_version=7),
            Delta(index=1, text="second", ids=[6], finish_reason="stop"),
            Delta(finish_reason="length"),
        ]
    ),
    max_size=2,
)


def _whole(said: dict[str, Any]) -> WholeDelta:
    numbers = np.array(said["logprobs"])
    kept = {name: value for name, value in said.items() if name not in ("prompt_ids", "ids", "logprobs")}
    sequence, length = joined_ids(said["prompt_ids"], said["ids"]), len(said["prompt_ids"])
    return WholeDelta(**kept, sequence=sequence, prompt_length=length, numbers=numbers, highest=-0.5)


def _told(collector: Collector, expected: int, aborted: bool) -> object:
    try:
        choices: object = [
            structs.replace(choice, ids=listed(choice.ids), logprobs=listed(choice.logprobs))
            for choice in collector.choices(expected, aborted=aborted)
        ]
    except EngineError as error:
        choices = error.message
    facts = listed(collector.prompt_ids), collector.usage, collector.logprobs_mode, collector.policy_run
    return choices, facts, collector.faults, collector.empty, collector.count


@settings(max_examples=examples(400), deadline=None)
@given(_WHOLE, _PIECES, _PIECES, st.sampled_from([1, 2]), st.booleans())
def test_a_reply_in_one_piece_is_put_together_as_any(
    said: dict[str, Any], before: list[Delta], after: list[Delta], expected: int, aborted: bool
) -> None:
    whole = _told(collect(*before, _whole(said), *after), expected, aborted)
    assert whole == _told(collect(*before, Delta(**said), *after), expected, aborted)
