"""A step that is told to be usual at a glance is one that the long way finds good, and to it says the same."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError
from agentworld.pool import intake, usual_steps
from agentworld.pool.bounds import check_exchange
from agentworld.pool.usual_steps import exchange_text, is_usual
from agentworld.records import Exchange, Message, Policy, Sampling, Step, Usage
from tests.examples import examples

_GOOD: dict[str, Any] = {
    "step_id": "s",
    "trajectory_id": "t",
    "agent": "a",
    "model": "m",
    "policy": Policy("m", "r", 3),
    "token_source": "token-in",
    "logprob_space": "raw",
    "sampling": Sampling(temperature=1.0, stop=("x",)),
    "finish_reason": "stop",
    "usage": Usage(2, 1),
    "created_at": 1.5,
    "latency_ms": 2.0,
    "metadata": {"prompt": "bridged", "n": 1, "none": None},
}
_ODD = st.sampled_from(
    [
        None, True, False, 0, 1, -1, 2**31, 2**63, 1.5, float("nan"), float("inf"), -float("inf"), "", "raw",
        "token-in", "\ud800", "\0", "x" * 300, b"x", (), ("a",), [], [1], {}, {"a": 1}, {"a": 1.5}, {1: 2},
        {"a": [[1]]}, {"a": b""},
        np.float32(1.0), np.int64(2), Policy("m", "r", True), Policy("m", "r", -1), Policy("m", 3, 1), Policy("m"),  # type: ignore[arg-type]
        Sampling(top_k=1.5), Sampling(stop=["x"]), Sampling(stop=(1,)), Sampling(logit_bias={"1": 2.0}),  # type: ignore[arg-type]
        Sampling(response_format={"a": b""}), Usage(1.5, 1), Usage(True, 1), Usage(-1, 1), Usage(2**40, 1), Usage(),  # type: ignore[arg-type]
    ]
)  # fmt: skip
_FIELDS = [name for name in Step.__struct_fields__ if name not in ("prompt_messages", "response_message", "tools")]


def _outcome(step: Step, *, long_way: bool) -> object:
    """What becomes of a step, or why it is refused."""
    with pytest.MonkeyPatch.context() as patch:
        if long_way:
            patch.setattr(intake, "is_usual", lambda step: False)
        try:
            found = intake.prepare(step)
        except InvalidRequestError as error:
            return error.one_line()
    lengths = found.prompt_length, found.response_length, found.sampled, found.lacks
    return found.rest, found.reasons, found.rewards, lengths


@settings(max_examples=examples(600), deadline=None)
@given(st.dictionaries(st.sampled_from(_FIELDS), _ODD, max_size=2))
@example({"policy": _GOOD["sampling"]})  # Known to be good, elsewhere.
@example({"sampling": _GOOD["policy"]})
def test_both_ways_have_the_same_outcome(odd: dict[str, Any]) -> None:
    intake.prepare(Step(**_GOOD))
    step = Step(**{**_GOOD, **odd})
    assert _outcome(step, long_way=False) == _outcome(step, long_way=True)
    assert odd or is_usual(step)


@pytest.mark.parametrize("name", ["excluded_reason", "fork_reason", "logprob_space"])
def test_a_number_that_json_writes_as_null_is_no_text(name: str) -> None:
    assert (
        _outcome(Step(**{**_GOOD, name: float("nan")}), long_way=False) == f"this must be a text, not float (at {name})"
    )


def test_the_steps_of_a_run_are_usual_once_its_words_are_known() -> None:
    intake.prepare(Step(**_GOOD))
    later = {**_GOOD, "step_id": "s2", "created_at": 9.0, "usage": Usage(7, 8), "policy": Policy("m", "r", 4)}
    assert is_usual(Step(**later))
    assert not is_usual(Step(**{**later, "agent": "another"}))
    intake.prepare(Step(**{**later, "agent": "another"}))
    assert is_usual(Step(**{**later, "agent": "another"}))


def test_how_it_is_sampled_is_looked_at_again_where_it_may_have_changed() -> None:
    intake.prepare(Step(**_GOOD))
    bias = {"1": 2.0}
    step = Step(**{**_GOOD, "sampling": Sampling(logit_bias=bias)})
    assert is_usual(step)
    bias["1"] = "no number"  # type: ignore[assignment]
    assert not is_usual(step)


def test_long_records_are_not_kept_in_memory() -> None:
    kept = []
    for size in (1000, 5000):
        sampling = Sampling(stop=("x" * size,))
        intake.prepare(Step(**{**_GOOD, "sampling": sampling}))
        assert is_usual(Step(**{**_GOOD, "sampling": sampling}))
        kept.append(id(sampling) in usual_steps._records)
    assert kept == [True, False]


_NUMBER = st.one_of(st.floats(-20, 0.01), st.floats(), st.sampled_from([0.0, -0.0, 3.5e38, 3.4028235e38, 1e-50, -1e38]))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(_NUMBER, max_size=6))
@example([3.4028235677973366e38])  # Rounds to what float32 can hold, and is more.
def test_log_probabilities_in_an_array_are_taken_as_those_in_a_list(values: list[float]) -> None:
    step = Step(**{**_GOOD, "response_logprobs": values})
    array = Step(**{**_GOOD, "response_logprobs": np.array(values, dtype=np.float64)})
    taken, other = intake.prepare(step).logprobs, intake.prepare(array).logprobs
    assert taken is not None
    assert other is not None
    assert (taken.dtype, taken.tobytes()) == (other.dtype, other.tobytes())


_EXCHANGE: dict[str, Any] = {
    "exchange_id": "e",
    "trajectory_id": "t",
    "dialect": "chat",
    "model": "m",
    "requested_model": "asked",
    "messages": [],
    "sampling": Sampling(temperature=1.0, stop=("x",)),
    "agent": "a",
    "policy": Policy("m", "r", 3),
    "retry_count": 1,
    "body_digest": "0a1b",
    "created_at": 1.5,
    "latency_ms": 2.0,
}
_KEPT_EMPTY = ("messages", "tools", "choices", "marks", "only_group", "only_channel", "exchange_id", "trajectory_id")


def _said(kept: Exchange, check: Any) -> object:
    try:
        return check(kept)
    except InvalidRequestError as error:
        return error.one_line()


@settings(max_examples=examples(600), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([name for name in Exchange.__struct_fields__ if name not in _KEPT_EMPTY]), _ODD, max_size=2
    )
)
def test_an_exchange_says_the_same_both_ways(odd: dict[str, Any]) -> None:
    exchange_text(Exchange(**_EXCHANGE))
    said = {**_EXCHANGE, **odd}
    assert _said(Exchange(**said), exchange_text) == _said(Exchange(**said), check_exchange)


_OPEN: dict[str, Any] = {
    "exchange_id": "e",
    "group_id": None,
    "channel": "train",
    "model": "m",
    "requested_model": "asked",
    "dialect": "chat",
    "latency_ms": 2.0,
    "created_at": 1.5,
    "agent": "a",
    "policy": _EXCHANGE["policy"],
    "sampling": _EXCHANGE["sampling"],
    "prompt_messages": [Message(role="user", content="u")],
    "tools": None,
}
_LEFT = {**dict.fromkeys(_OPEN), "channel": "other", "exchange_id": "f", "created_at": 0.0, "group_id": "g"}


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sets(st.sampled_from(sorted(_OPEN)), max_size=3),
    st.dictionaries(st.sampled_from(["agent", "group_id", "latency_ms"]), st.just(None)),
    st.sampled_from([[], [{"type": "function"}]]),
)
def test_choices_that_say_all_are_taken_as_they_are(left: set[str], odd: dict[str, Any], tools: list[Any]) -> None:
    said = {**_OPEN, **{name: _LEFT[name] for name in left}}
    exchange = Exchange(**{**_EXCHANGE, **odd, "tools": tools})
    exchange.choices = [Step(step_id="s", trajectory_id="t", **said)]
    (found,) = intake.choices_of(exchange)
    assert found == intake._filled(exchange.choices[0], exchange)
    if not left and not odd and not tools:
        assert found is exchange.choices[0]
