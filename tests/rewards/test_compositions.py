"""Rewards of rewards, steps of trajectories, and the order in which evaluators run."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import ConfigError
from agentworld.rewards import EvaluationError, checked
from agentworld.rewards.registry import after, evaluators_from, make_evaluator, read_evaluators
from tests.rewards.runs import group_of, run_of


def composed(settings, **rewards):
    return checked(make_evaluator(settings, "test"), run_of("x", rewards=rewards))["t"].values["reward"]


SUM = {"kind": "sum", "weights": {"a": 2.0, "b": -0.5}}


@pytest.mark.parametrize(
    ("settings", "rewards", "expected"),
    [
        (SUM, {"a": 1.0, "b": 2.0}, 1.0),
        ({**SUM, "normalise": True}, {"a": 1.0, "b": 2.0}, 0.4),
        ({"kind": "gate", "value": "a", "gate": "b"}, {"a": 0.7, "b": 1.0}, 0.7),
        ({"kind": "gate", "value": "a", "gate": "b"}, {"a": 0.7, "b": 0.99}, 0.0),
        ({"kind": "gate", "value": "a", "gate": "b", "closed": -1.0}, {"b": 0.0}, -1.0),
        ({"kind": "gate", "value": "a", "gate": "b", "at_least": 0.5}, {"a": 0.7, "b": 0.5}, 0.7),
        ({"kind": "clip", "value": "a", "low": 0.0, "high": 1.0}, {"a": 1.7}, 1.0),
        ({"kind": "clip", "value": "a", "low": 0.0}, {"a": -1.7}, 0.0),
        ({"kind": "clip", "value": "a", "high": 2.0}, {"a": 1.7}, 1.7),
    ],
)
def test_values(settings, rewards, expected):
    assert composed(settings, **rewards) == pytest.approx(expected)


@pytest.mark.parametrize(
    "settings", [SUM, {"kind": "gate", "value": "b", "gate": "a"}, {"kind": "clip", "value": "b", "low": 0.0}]
)
def test_a_missing_reward_is_not_zero(settings):
    with pytest.raises(EvaluationError, match="t has no reward 'b'"):
        composed(settings, a=1.0)


def relative(by, values):
    group = group_of(
        *[run_of("x", trajectory_id=f"t{place}", rewards={"a": value}) for place, value in enumerate(values)]
    )
    verdicts = checked(make_evaluator({"kind": "normalise", "value": "a", "by": by}, "test"), group)
    return [verdicts[f"t{place}"].values["reward"] for place in range(len(values))]


def test_relative_to_the_group():
    assert relative("mean", [1.0, 2.0, 6.0]) == [-2.0, -1.0, 3.0]
    assert relative("range", [1.0, 2.0, 6.0]) == [0.0, 0.2, 1.0]
    assert relative("std", [0.0, 2.0]) == pytest.approx([-1.0, 1.0])
    assert relative("std", [3.0, 3.0]) == [0.0, 0.0]
    assert relative("range", [3.0, 3.0]) == [0.5, 0.5]
    with pytest.raises(EvaluationError, match="t1 has no reward 'a'"):
        checked(make_evaluator({"kind": "normalise", "value": "a"}, "test"), group_of(run_of("x", trajectory_id="t1")))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8))
def test_relative_values_sum_to_zero_or_lie_within_their_range(values):
    assert sum(relative("std", values)) == pytest.approx(0.0, abs=1e-4)
    assert all(0.0 <= each <= 1.0 for each in relative("range", values))


TABLES = [
    {"kind": "sum", "name": "total", "weights": {"gated": 1.0, "relative": 0.5}},
    {"kind": "normalise", "value": "right", "reward": "relative"},
    {"kind": "gate", "value": "short", "gate": "right", "reward": "gated"},
    {"kind": "exact", "reference": "4", "reward": "right"},
    {"kind": "expression", "expression": "1 / n_steps", "reward": "short"},
]


def test_each_runs_after_what_it_needs_and_over_groups_where_that_is_needed():
    made = evaluators_from(TABLES)
    names = [each.name for each in made]
    assert names.index("exact") < names.index("gate") < names.index("total")
    assert names.index("normalise") < names.index("total")
    assert {each.name: each.scope for each in made} == {
        "total": "group",
        "normalise": "group",
        "gate": "trajectory",
        "exact": "trajectory",
        "expression": "trajectory",
    }


def test_a_whole_file_over_a_group():
    group = group_of("4", "5")
    for each in evaluators_from(TABLES):
        if each.scope == "group":
            group = after(group, each, checked(each, group))
        else:
            members = tuple(after(member, each, checked(each, member)) for member in group.members)
            group = msgspec.structs.replace(group, members=members)
    right, wrong = (member.trajectory.rewards for member in group.members)
    assert right["reward"] == pytest.approx(1.0 + 0.5, abs=1e-6)
    assert wrong["reward"] == pytest.approx(0.0 - 0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("tables", "complaint", "hint"),
    [
        ([{"kind": "sum", "weights": {"x": 1.0}}], "needs the reward 'x', which no evaluator here gives", "stored"),
        (
            [{"kind": "sum", "weights": {"rigth": 1.0}}, {"kind": "exact", "reward": "right"}],
            "needs the reward 'rigth'",
            "Did you mean right?",
        ),
        (
            [
                {"kind": "clip", "name": "one", "value": "b", "low": 0.0, "reward": "a"},
                {"kind": "clip", "name": "other", "value": "a", "low": 0.0, "reward": "b"},
            ],
            "in a circle: (one needs other needs one|other needs one needs other)",
            None,
        ),
        ([{"kind": "clip", "value": "a", "low": 0.0, "reward": "a"}], "in a circle: clip needs clip", None),
        ([{"kind": "exact"}, {"kind": "exact"}], "two evaluators are called 'exact'", "name"),
        ([{"kind": "exact"}, {"kind": "numeric"}], "exact and numeric both give 'reward'", "reward ="),
        (
            [
                {"kind": "sum", "weights": {"p": 1.0}},
                {"kind": "steps", "of": {"kind": "exact"}, "reward": "p"},
            ],
            "sum needs 'p', which steps gives to steps",
            None,
        ),
        ([{"kind": "clip", "value": "a"}], "clip needs `low`", None),
        ([{"kind": "clip", "value": "a", "low": 2.0, "high": 1.0}], "clip needs `low`", None),
        ([{"kind": "sum", "weights": {}}], "weights needs names", None),
        ([{"kind": "sum", "weights": {"a": float("nan")}}], "nan is no number", "finite"),
        ([{"kind": "clip", "value": "a", "low": float("-inf")}], "-inf is no number", "finite"),
        ([{"kind": "exact", "name": ""}], "name", None),
        ([{"kind": "exact", "reward": "two words"}], "reward", None),
        ([{"kind": "sum", "weights": {"a": 0.0}, "normalise": True}], "cannot be normalised", None),
        ([{"kind": "steps", "of": {"kind": "judge_ranking", "model": "m"}}], "has to judge trajectories", None),
        ([{"kind": "steps", "of": {"kind": "exakt"}}], "no evaluator is called 'exakt'", "exact"),
    ],
)
def test_what_cannot_be_composed_is_refused(tables, complaint, hint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        evaluators_from(tables, "file.toml")
    assert caught.value.message.startswith("file.toml") or caught.value.path
    if hint:
        assert hint in caught.value.hint


def test_rewards_that_the_record_has_are_named():
    (made,) = evaluators_from([{"kind": "sum", "weights": {"human": 1.0}, "stored": ["human"]}])
    assert checked(made, run_of("x", rewards={"human": 0.5}))["t"].values == {"reward": 0.5}


def test_a_formula_may_read_the_reward_that_is_there():
    (made,) = evaluators_from([{"kind": "expression", "expression": "reward + 1"}])
    assert made.needs == ("reward",)
    assert checked(made, run_of("x", rewards={"reward": 0.5}, reward=0.5))["t"].values == {"reward": 1.5}


def test_a_file(tmp_path):
    file = tmp_path / "rewards.toml"
    file.write_text('[[evaluator]]\nkind = "exact"\nreference = "4"\n')
    assert [each.name for each in read_evaluators(file)] == ["exact"]
    file.write_text('[run]\nchannel = "train"\n[[evaluator]]\nkind = "exact"\n')
    assert [each.name for each in read_evaluators(file, other=["run"])] == ["exact"]
    with pytest.raises(ConfigError, match="there is no 'run'"):
        read_evaluators(file)
    for text in ("", "evaluator = 3", "evaluator = []", "[[evaluators]]\nkind = 'exact'"):
        file.write_text(text)
        with pytest.raises(ConfigError):
            read_evaluators(file)


def test_folders_start_at_the_file(tmp_path):
    (tmp_path / "checks").mkdir()
    program = {"kind": "program", "command": ["true"], "folder": "checks"}
    made = make_evaluator({"kind": "steps", "of": program}, "test", tmp_path)
    assert made.inner.folder == make_evaluator(program, "test", tmp_path).folder == str(tmp_path / "checks")


def test_process_rewards_of_a_rule():
    settings = {"kind": "steps", "of": {"kind": "regex", "pattern": "good"}, "reward": "good"}
    verdicts = checked(make_evaluator(settings, "test"), run_of("good", "bad", "good"))
    assert [each.values["good"] for each in verdicts.values()] == [1.0, 0.0, 1.0]
    assert list(checked(make_evaluator({**settings, "most": 2}, "test"), run_of("a", "b", "c"))) == ["t-s1", "t-s2"]


def test_a_step_sees_its_own_path_alone():
    run = run_of("a", "b", "c")
    run.steps[2].parent_step_id = "t-s0"
    settings = {"kind": "steps", "of": {"kind": "length", "free": 0, "limit": 100, "of": "all"}}
    verdicts = checked(make_evaluator(settings, "test"), run)
    assert {target: each.details["length"] for target, each in verdicts.items()} == {"t-s0": 10, "t-s1": 30, "t-s2": 40}


def test_steps_without_messages_are_not_judged():
    run = run_of("a", "b")
    run.steps[0].response_message = None
    settings = {"kind": "steps", "of": {"kind": "regex", "pattern": "b"}}
    assert list(checked(make_evaluator(settings, "test"), run)) == ["t-s1"]
    with pytest.raises(EvaluationError, match="holds no messages"):
        checked(make_evaluator(settings, "test"), run_of())
