"""What an evaluator may say: everything else is a failed evaluation with its reason."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError
from agentworld.records import Policy
from agentworld.rewards import (
    EvaluationError,
    Verdict,
    checked,
    evaluator_fingerprint,
    reward_records,
    subject_fingerprint,
    with_values,
)
from agentworld.rewards.checked import MAX_DETAILS_BYTES
from agentworld.rewards.registry import make_evaluator
from agentworld.rewards.rules.answer import Exact
from tests.examples import examples
from tests.rewards.runs import group_of, run_of


class Says:
    """An evaluator that says what it is told to."""

    name, version, gives, needs, configuration = "says", "1", (), (), None

    def __init__(self, said, scope="trajectory", gives=()):
        self.said, self.scope, self.gives = said, scope, gives

    def evaluate(self, subject):
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said


@pytest.mark.parametrize("value", [1, 0.5, -3, np.float32(0.5), np.int64(2), 10**300])
def test_finite_numbers_are_taken(value):
    verdicts = checked(Says(Verdict({"reward": value}, {"why": [1, None]})), run_of("x"))
    assert verdicts == {"t": Verdict({"reward": float(value)}, {"why": [1, None]})}


def test_what_is_left_out_is_not_judged():
    assert checked(Says(Verdict({})), run_of("x")) == {"t": Verdict({})}
    assert checked(Says({}, "step"), run_of("x", "y")) == {}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (ValueError("boom"), "says raised ValueError: boom"),
        (SystemExit(3), "says raised SystemExit"),
        (RecursionError(), "RecursionError"),
        (InvalidRequestError("no task"), "says: no task"),
        (None, "NoneType for t, not a Verdict"),
        (1.0, "float for t, not a Verdict"),
        ({"reward": 1.0}, "dict for t, not a Verdict"),
        (Verdict([1.0]), "the values for t are a list"),
        (Verdict({"reward": math.nan}), "reward is nan, no finite number"),
        (Verdict({"reward": math.inf}), "reward is inf, no finite number"),
        (Verdict({"reward": -math.inf}), "reward is -inf"),
        (Verdict({"reward": 10**400}), "reward is inf"),
        (Verdict({"reward": True}), "reward is a bool, not a number"),
        (Verdict({"reward": np.bool_(True)}), "bool, not a number"),
        (Verdict({"reward": "1"}), "reward is a str, not a number"),
        (Verdict({"reward": None}), "reward is a NoneType, not a number"),
        (Verdict({"reward": 1j}), "reward is a complex, not a number"),
        (Verdict({"reward": np.array([1.0, 2.0])}), "reward is a ndarray, not a number"),
        (Verdict({"": 1.0}), "'' is no name"),
        (Verdict({"a b": 1.0}), "'a b' is no name"),
        (Verdict({"x" * 129: 1.0}), "is no name"),
        (Verdict({3: 1.0}), "3 is no name"),
        (Verdict({f"v{number}": 1.0 for number in range(65)}), "gave 65 values"),
        (Verdict({"reward": 1.0}, "text"), "the details are a str"),
        (Verdict({"reward": 1.0}, {"a": object()}), "the details are no JSON"),
        (Verdict({"reward": 1.0}, {"a": math.nan}), "the details are no JSON"),
        (Verdict({"reward": 1.0}, {"a": "x" * MAX_DETAILS_BYTES}), r"the details have \d+ bytes"),
    ],
)
def test_anything_else_is_a_failed_evaluation(said, reason):
    with pytest.raises(EvaluationError, match=reason):
        checked(Says(said), run_of("x"))


def test_a_message_of_any_length_is_cut():
    with pytest.raises(EvaluationError) as caught:
        checked(Says(ValueError("x" * 10_000)), run_of("x"))
    assert len(caught.value.message) < 600


def test_ctrl_c_goes_through():
    with pytest.raises(KeyboardInterrupt):
        checked(Says(KeyboardInterrupt()), run_of("x"))


def test_a_name_that_was_not_declared_is_refused():
    assert checked(Says(Verdict({"a": 1}), gives=("a", "b")), run_of("x"))
    with pytest.raises(EvaluationError, match="gave 'c', and says that it gives a, b"):
        checked(Says(Verdict({"c": 1}), gives=("a", "b")), run_of("x"))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Verdict({"reward": 1.0}), "a Verdict, not verdicts by trajectory id"),
        ([Verdict({"reward": 1.0})] * 2, "a list, not verdicts"),
        ({"t0": Verdict({"reward": 1.0})}, "judged 1 of 2 members; t1 missing"),
        ({}, "judged 0 of 2 members"),
        ({name: Verdict({"reward": 1.0}) for name in ("t0", "t1", "t2")}, "judged t2, which it was not given"),
        ({"t0": Verdict({"reward": 1.0}), "t1": 1.0}, "float for t1"),
        ({"t0": Verdict({"reward": 1.0}), "t1": Verdict({"reward": math.nan})}, "reward is nan"),
    ],
)
def test_a_group_is_judged_whole_or_not_at_all(said, reason):
    with pytest.raises(EvaluationError, match=reason):
        checked(Says(said, "group"), group_of("x", "y"))


def test_a_member_may_be_left_unjudged_by_name():
    said = {"t1": Verdict({"reward": 1}), "t0": Verdict({})}
    assert list(checked(Says(said, "group"), group_of("x", "y"))) == ["t0", "t1"]


def test_steps_that_are_not_there_are_refused():
    with pytest.raises(EvaluationError, match="judged s9, which it was not given"):
        checked(Says({"s9": Verdict({"reward": 1.0})}, "step"), run_of("x"))


def test_the_subject_has_to_be_of_the_scope():
    with pytest.raises(EvaluationError, match="judges a group, and was given a BatchTrajectory"):
        checked(Says({}, "group"), run_of("x"))
    with pytest.raises(EvaluationError, match="judges a trajectory, and was given a RolloutGroup"):
        checked(Says(Verdict({})), group_of("x"))


@settings(max_examples=examples(50))
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_whatever_is_said_is_a_verdict_or_a_failed_evaluation(said):
    for given_, scope in ((said, "trajectory"), (Verdict({"reward": said}), "trajectory"), (said, "step")):
        try:
            verdicts = checked(Says(given_, scope), run_of("x"))
        except EvaluationError:
            continue
        assert all(math.isfinite(value) for each in verdicts.values() for value in each.values.values())


def test_records_carry_source_target_and_details():
    run = run_of("x", "y")
    (reward,) = reward_records(Says(None), run, {"t": Verdict({"good": 1.0}, {"why": 2})})
    assert (reward.trajectory_id, reward.step_id, reward.name, reward.source) == ("t", None, "good", "says")
    assert reward.details == {"why": 2}
    (reward,) = reward_records(Says(None, "step"), run, {"t-s1": Verdict({"good": 1.0})})
    assert (reward.trajectory_id, reward.step_id, reward.details) == ("t", "t-s1", None)


def test_a_fingerprint_tells_evaluators_apart():
    one = Exact(name="a", reference="1")
    assert evaluator_fingerprint(one) == evaluator_fingerprint(Exact(name="a", reference="1"))
    others = [
        Exact(name="b", reference="1"),
        Exact(name="a", reference="2"),
        Exact(name="a", reference="1", version="2"),
    ]
    assert len({evaluator_fingerprint(each) for each in (one, *others)}) == 4


def test_a_fingerprint_tells_what_is_judged_apart():
    evaluator = Exact(name="a")
    runs = [
        run_of("x"),
        run_of("y"),
        run_of("x", "x"),
        run_of("x", question="Another?"),
        run_of("x", task={"reference": 1}),
        run_of("x", status="failed"),
    ]
    assert len({subject_fingerprint(evaluator, run) for run in runs}) == len(runs)


def test_a_fingerprint_leaves_out_what_nobody_judges():
    evaluator, run = Exact(name="a"), run_of("x")
    other = run_of("x", trajectory_id="another", created_at=5.0, labels={"a": 1}, rewards={"r": 1.0})
    other.steps[0].policy = Policy(model="m", version=3)
    assert subject_fingerprint(evaluator, run) == subject_fingerprint(evaluator, other)
    # What is kept by the ids of steps and members has them in it.
    assert subject_fingerprint(Says(None, "step"), run) != subject_fingerprint(Says(None, "step"), other)
    assert subject_fingerprint(Says(None, "group"), group_of(run)) != subject_fingerprint(
        Says(None, "group"), group_of(other)
    )


def test_a_fingerprint_has_the_rewards_that_are_needed_in_it():
    class Needs(Says):
        needs = ("correct",)

    run = run_of("x")
    digests = [subject_fingerprint(Needs(None), each) for each in (run, with_values(run, {"correct": 1.0}))]
    assert digests[0] != digests[1]
    assert digests[0] == subject_fingerprint(Needs(None), with_values(run, {"other": 1.0}))


# Ids, times, what others say of the record, and where it stands; the content and the parent are told by other means.
LEFT_OUT_OF_TRAJECTORIES = {
    *("trajectory_id", "created_at", "completed_at", "rewards", "reward", "annotations", "masked", "readiness"),
    *("group_timeout", "group_failures"),
}
LEFT_OUT_OF_STEPS = {
    *("step_id", "trajectory_id", "exchange_id", "group_id", "parent_step_id", "supersedes", "created_at"),
    *("rewards", "reward", "annotations", "readiness"),
}


def test_what_code_of_yours_may_read_is_all_in_its_fingerprint():
    function, run = plugin_of_records(), run_of("x")
    before = subject_fingerprint(function, run)
    for owner, left_out in ((run.trajectory, LEFT_OUT_OF_TRAJECTORIES), (run.steps[0], LEFT_OUT_OF_STEPS)):
        for field in msgspec.structs.fields(owner):
            kept = getattr(owner, field.name)
            setattr(owner, field.name, {"another": 1.0} if isinstance(kept, dict) else "another")
            changed = subject_fingerprint(function, run) != before
            assert changed == (field.name not in left_out), field.name
            setattr(owner, field.name, kept)
    other = run_of("x", trajectory_id="t", labels={"evaluation.a": "failed"})
    assert subject_fingerprint(function, other) == before


def plugin_of_records():
    return make_evaluator({"kind": "tests.rewards.bad_evaluators:finished"}, "test")


def test_a_judge_of_steps_reads_what_the_one_that_it_asks_reads():
    of_function = make_evaluator({"kind": "steps", "of": {"kind": "what_it_sees"}}, "test")
    of_rule = make_evaluator({"kind": "steps", "of": {"kind": "exact", "reference": "x"}}, "test")
    assert of_function.needs == ("a",)
    for changed in ({"labels": {"a": 1}}, {"rewards": {"a": 1.0}}):
        digests = [subject_fingerprint(of_function, run_of("x", **each)) for each in ({}, changed)]
        assert digests[0] != digests[1]
        same = {subject_fingerprint(of_rule, run_of("x", **each)) for each in ({}, changed)}
        assert len(same) == 1


def test_values_are_set_on_a_copy():
    run = run_of("x", rewards={"a": 1.0})
    made = with_values(run, {"reward": 0.5})
    assert (made.trajectory.rewards, made.trajectory.reward) == ({"a": 1.0, "reward": 0.5}, 0.5)
    assert run.trajectory.rewards == {"a": 1.0}
    assert msgspec.to_builtins(made.steps) == msgspec.to_builtins(run.steps)
