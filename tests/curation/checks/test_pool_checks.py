"""Checks over a pool: what they find, that a saved state goes on, and that what is new is all that they need."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.curation.checks import CheckSettings, pool_checks
from agentworld.curation.checks.difficulty import Difficulty, pass_at_k, task_key
from agentworld.curation.checks.duplicates import ExactDuplicates, content_digest
from agentworld.curation.checks.lengths import LengthOutliers, weighted_median
from agentworld.curation.checks.near_duplicates import NearDuplicates
from agentworld.curation.checks.passes import PoolCheck
from agentworld.curation.checks.saved import StateError
from tests.curation.checks.building import calls, run, says, tool, user

LONG = " ".join(f"word{number}" for number in range(60))


def _said(name, text, **trajectory):
    return run(user("Do it."), says(text), name=name, **trajectory)


def _found(check, *records):
    for record in records:
        check.add(record)
    return {each.trajectory_id: each.value for each in check.result()}


# Exact duplicates.


def test_an_exact_copy_names_the_first_of_its_channel():
    check = ExactDuplicates()
    records = [_said("a", "x"), _said("b", "x"), _said("c", "y"), _said("d", "x", channel="val"), _said("e", "x")]
    assert _found(check, *records) == {"b": "a", "e": "a"}
    assert check.result() == []


def test_ids_of_calls_do_not_count_and_arguments_do():
    one = run(user("x"), calls(("bash", {"a": 1})), tool("ok"), says("b"))
    other = run(user("x"), calls(("bash", {"a": 1})), tool("ok"), says("b"))
    call = other.steps[0].response_message.tool_calls[0]
    message = other.steps[0].response_message
    renamed = msgspec.structs.replace(message, tool_calls=(msgspec.structs.replace(call, id="another"),))
    other.steps[0].response_message = other.steps[1].prompt_messages[1] = renamed
    assert content_digest(one) == content_digest(other)
    assert content_digest(one) != content_digest(run(user("x"), calls(("bash", {"a": 2})), tool("ok"), says("b")))
    assert content_digest(one) != content_digest(run(user("x"), calls(("bash", {"a": 1})), tool("OK"), says("b")))


def test_where_a_text_ends_counts():
    digests = {content_digest(run(user(a), says(b))) for a, b in (("xy", "z"), ("x", "yz"), ("", "xyz"), ("xyz", ""))}
    assert len(digests) == 4


def test_ids_stand_for_messages_that_are_not_there():
    def ids(name, *reply):
        record = _said(name, "x")
        for step in record.steps:
            step.prompt_messages = step.response_message = None
            step.prompt_ids, step.response_ids = [1, 2], list(reply)
        return record

    assert _found(ExactDuplicates(), ids("a", 3, 4), ids("b", 3, 4), ids("c", 3)) == {"b": "a"}
    assert content_digest(run(user("x"))) is None


def test_a_failed_one_is_no_original():
    records = [_said("a", "x", status="failed"), _said("b", "x"), _said("c", "x")]
    assert _found(ExactDuplicates(), *records) == {"c": "b"}


def test_a_trajectory_that_grew_is_no_copy_any_more():
    check = ExactDuplicates()
    check.add(_said("a", "x"))
    check.add(_said("b", "x"))
    check.add(_said("b", "x and more"))
    check.add(_said("a", "else"))
    assert check.result() == []
    assert _found(check, _said("c", "x"), _said("d", "x and more"), _said("e", "else")) == {"d": "b", "e": "a"}


def test_exact_duplicates_forget_the_oldest():
    check = ExactDuplicates(CheckSettings(remembered=2))
    assert _found(check, *[_said(name, name) for name in "abc"], _said("d", "a"), _said("e", "c")) == {"e": "c"}


# Near-duplicates.


def test_a_near_copy_names_the_first():
    check = NearDuplicates()
    near = LONG.replace("word59", "other")
    found = _found(check, _said("a", LONG), _said("b", near), _said("c", LONG[::-1]), _said("d", near, channel="val"))
    assert set(found) == {"b"}
    assert 0.8 <= found["b"] < 1
    assert _found(check, _said("short", "yes"), _said("short2", "yes")) == {}


# Lengths.


def test_a_length_far_from_the_others_is_told():
    check = LengthOutliers(CheckSettings(outlier_from=20))
    usual = [_said(f"t{number}", "x" * (100 + number)) for number in range(20)]
    found = _found(check, *usual, _said("long", "x" * 5_000), _said("tiny", "x"), _said("other", "x", channel="val"))
    assert set(found) == {"long", "tiny"}
    assert found["tiny"] < -3.5 < 3.5 < found["long"]


def test_few_lengths_say_nothing():
    check = LengthOutliers()
    assert _found(check, *[_said(f"t{number}", "x" * 10) for number in range(28)], _said("long", "x" * 9_999)) == {}


def test_tokens_count_before_characters():
    check = LengthOutliers(CheckSettings(outlier_from=2))
    records = [_said(f"t{number}", "x", step={"response_length": 10}) for number in range(9)]
    check.add(_said("long", "x", step={"response_length": 9_000}))
    assert _found(check, *records).keys() == {"long"}


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40))
def test_the_median_of_counts_is_the_median(values):
    ordered = sorted(values)
    expected = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    assert weighted_median({value: values.count(value) for value in values}) == expected


# Difficulty.


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_choices_with_a_correct_one(numbers):
    rollouts, correct, k = numbers
    outcomes = [number < correct for number in range(rollouts)]
    choices = list(itertools.combinations(outcomes, k))
    assert pass_at_k(rollouts, correct, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-9)


@pytest.mark.parametrize("numbers", [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)])
def test_pass_at_k_of_what_cannot_be(numbers):
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(*numbers)


def _rollout(name, reward, task="t", **trajectory):
    return _said(name, name, reward=reward, task={"task_id": task}, **trajectory)


def test_difficulty_is_told_of_all_rollouts_of_a_task_that_changed():
    check = Difficulty()
    for record in (_rollout("a", 1.0), _rollout("b", 0.0), _rollout("c", 0.4), _rollout("z", 1.0, task="u")):
        check.add(record)
    check.add(_rollout("unjudged", None))
    found = {each.trajectory_id: each for each in check.result()}
    assert {name: each.value for name, each in found.items()} == {
        "a": 0.666667,
        "b": 0.666667,
        "c": 0.666667,
        "z": 0.0,
    }
    assert found["a"].evidence == {
        "task": "/t",
        "rollouts": 3,
        "correct": 1,
        "pass@1": 0.333333,
        "pass@2": 0.666667,
    }
    assert _found(check, _rollout("a", 1.0)) == {}
    assert _found(check, _rollout("c", 1.0)) == {"a": 0.333333, "b": 0.333333, "c": 0.333333}
    assert _found(check, _rollout("c", None)) == {"a": 0.5, "b": 0.5}


def test_correctness_has_a_reward_of_its_own():
    check = Difficulty()
    assert _found(check, _rollout("a", 0.9, rewards={"correct": 0.0}), _rollout("b", 1.0)) == {"a": 0.5, "b": 0.5}


def test_tasks_are_told_apart_by_what_names_them():
    assert task_key({"task_set": "s", "task_id": 3, "prompt": "x"}) == "s/3"
    assert task_key({"a": 1, "b": 2}) == task_key({"b": 2, "a": 1}) != task_key({"a": 1})
    assert task_key({"a": "\ud800"}) is not None
    assert task_key(None) is task_key({}) is None


# All of them.


def _workload():
    for number in range(40):
        text = LONG if number % 3 else " ".join(f"w{number}x{place}" for place in range(30 * (1 + number % 7)))
        yield _rollout(
            f"t{number}", float(number % 2), task=f"k{number % 5}", channel="val" if number % 11 == 5 else "train"
        )
        yield _said(f"s{number}", text)


@pytest.mark.parametrize("name", sorted(pool_checks()))
def test_a_saved_state_goes_on_as_if_nothing_had_happened(name):
    settings = CheckSettings(outlier_from=5, remembered=30)
    make = pool_checks()[name]
    straight, stopped = make(settings), make(settings)
    assert isinstance(straight, PoolCheck)
    records = list(_workload())
    expected, found = [], []
    for begin in range(0, len(records), 7):
        for record in records[begin : begin + 7]:
            straight.add(record)
            stopped.add(record)
        expected += straight.result()
        found += stopped.result()
        stopped = make.load(stopped.save(), settings)
    assert found == expected
    assert found
    assert stopped.save() == straight.save()


@pytest.mark.parametrize("name", sorted(pool_checks()))
@pytest.mark.parametrize("state", [b"", b"\xff\x00", b"\x92\xa1x\x80"])
def test_a_state_that_is_none_is_refused(name, state):
    with pytest.raises(StateError, match="no state of"):
        pool_checks()[name].load(state, CheckSettings())


def test_signatures_of_other_runs_are_refused():
    check = NearDuplicates(CheckSettings(shingle=3))
    check.add(_said("a", LONG))
    with pytest.raises(StateError, match="other runs of words"):
        NearDuplicates.load(check.save(), CheckSettings(shingle=5))
