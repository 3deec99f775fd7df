"""Signals that come before, or without, what they are about."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError, NotFoundError, QueryError
from agentworld.records import Annotation, Feedback, NewTrajectory, Reward
from tests.examples import examples

from ..samples import ids, step


def test_a_reward_before_its_step_is_on_it_once_it_comes(pool, clock):
    sent = [Reward(value=1, step_id="s"), Reward(value=0.5, step_id="s", name="format", source="judge")]
    result = pool.add_signals(sent)
    assert (result.changed, result.set, result.waiting) == (2, 0, ["s"])
    assert pool.add_rewards([Reward(value=1, step_id="s")]) == 0
    with pytest.raises(NotFoundError):
        pool.get_step("s")
    assert pool.stats().trajectories == {}
    clock.now += 10
    pool.append_steps([step("t", step_id="s")])
    found = pool.get_step("s")
    assert (found.reward, found.rewards) == (1.0, {"reward": 1.0, "format": 0.5})
    assert ids(pool.list_steps(where="reward.format == 0.5")) == ["s"]
    assert pool.stats().rewards == 2
    assert pool.awaited().items == []
    assert [(e.kind, e.step_id) for e in pool.events()] == [
        ("signal.waiting", "s"),
        ("signal.waiting", "s"),
        ("trajectory.created", None),
        ("step.appended", "s"),
        ("reward.set", "s"),
        ("reward.set", "s"),
    ]


def test_signals_before_their_trajectory_make_none_and_count_once_it_is_there(pool):
    pool.add_signals(
        [
            Reward(value=0.75, trajectory_id="t"),
            Feedback(kind="label", name="quality", value="good", trajectory_id="t"),
            Annotation(name="values", values=[1.0, 2.0], trajectory_id="t"),
        ]
    )
    with pytest.raises(NotFoundError):
        pool.get_trajectory("t")
    made = pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    assert (made.readiness, made.reward, made.labels, made.annotations) == (
        "open",
        0.75,
        {"quality": "good"},
        ["values"],
    )
    assert pool.complete_trajectory("t", "finished").readiness == "ready"


def test_a_step_that_implies_its_trajectory_brings_what_waited_for_both(pool):
    pool.add_rewards([Reward(value=1, trajectory_id="t"), Reward(value=2, step_id="s")])
    assert [(one.kind, one.id) for one in pool.awaited().items] == [("step", "s"), ("trajectory", "t")]
    pool.append_steps([step("t", step_id="s")])
    assert (pool.get_trajectory("t").reward, pool.get_step("s").reward) == (1.0, 2.0)
    assert pool.awaited().items == []


def test_what_is_awaited_is_listed_with_since_when(pool, clock):
    for name in ("c", "a", "b"):
        pool.add_rewards([Reward(value=1, step_id=name)])
        clock.now += 1
    pool.add_rewards([Reward(value=0, step_id="a"), Reward(value=1, trajectory_id="t")])
    first = pool.awaited(limit=2)
    assert [(one.kind, one.id, one.since) for one in first.items] == [
        ("step", "a", clock.now - 2),
        ("step", "b", clock.now - 1),
    ]
    rest = pool.awaited(cursor=first.next_cursor)
    assert [(one.kind, one.id) for one in rest.items] == [("step", "c"), ("trajectory", "t")]
    assert rest.next_cursor is None
    with pytest.raises(QueryError):
        pool.awaited(cursor="nonsense")


def test_the_last_reward_of_a_name_wins_whatever_its_source_and_time(pool):
    for value, source in ((1.0, "a"), (2.0, "b"), (3.0, "a")):
        pool.add_rewards([Reward(value=value, step_id="s", source=source, created_at=10.0 - value)])
    pool.append_steps([step("t", step_id="s")])
    assert pool.get_step("s").reward == 3.0


def test_what_others_say_of_a_step_wins_over_its_own_whichever_comes_first(pool):
    own = {"reward": 0.25, "rewards": {"format": 1.0}, "labels": {"quality": "own", "kept": 1}}
    said = [Reward(value=0.75, step_id="s", source="judge")]
    said.append(Feedback(kind="label", name="quality", value="theirs", step_id="s"))
    pool.add_signals(said)
    pool.append_steps([step("t", step_id="s", **own)])
    pool.append_steps([step("t", step_id="s2", **own)])
    pool.add_signals([_on(signal, "s2") for signal in said])
    for name in ("s", "s2"):
        found = pool.get_step(name)
        assert found.rewards == {"reward": 0.75, "format": 1.0}
        assert found.labels == {"quality": "theirs", "kept": 1}


def test_a_conflict_that_shows_later_is_a_dead_letter_and_the_rest_goes_in(pool):
    pool.add_signals(
        [
            Reward(value=1, step_id="s", trajectory_id="other"),
            Reward(value=2, step_id="s", name="format"),
            Feedback(kind="comment", comment="hm", step_id="s", trajectory_id="other"),
            Feedback(kind="label", name="l", value=1, step_id="s", trajectory_id="t"),
            Annotation(name="short", values=[1.0], step_id="s"),
            Annotation(name="right", values=[1.0, 2.0], step_id="s"),
            Annotation(name="elsewhere", values=[1.0, 2.0], step_id="s", trajectory_id="other"),
        ]
    )
    pool.append_steps([step("t", step_id="s")])
    found = pool.get_step("s")
    assert (found.rewards, found.labels, found.annotations) == ({"format": 2.0}, {"l": 1}, ["right"])
    letters = pool.dead_letters()
    assert [(one.kind, one.step_id) for one in letters] == [
        ("reward", "s"),
        ("feedback", "s"),
        ("annotation", "s"),
        ("annotation", "s"),
    ]
    assert "not of trajectory 'other'" in letters[0].reason
    assert letters[2].reason == "1 values for a reply of 2 tokens"
    assert json.loads(letters[0].record)["value"] == 1
    assert pool.stats().rewards == 1
    assert pool.stats().dead_letters == 4
    assert [one.name for one in pool.get_annotations(step_ids=["s"])] == ["right"]
    assert [one.kind for one in pool.list_feedback(step_id="s").items] == ["label"]


def test_a_conflict_with_a_step_that_is_there_refuses_all(pool):
    pool.append_steps([step("t", step_id="s")])
    bad = [
        Reward(value=1, step_id="s", trajectory_id="other"),
        Feedback(kind="comment", comment="hm", step_id="s", trajectory_id="other"),
        Annotation(name="short", values=[1.0], step_id="s"),
    ]
    for signal in bad:
        with pytest.raises(InvalidRequestError) as caught:
            pool.add_signals([Reward(value=1, step_id="s"), signal])
        assert "[1]" in caught.value.path
    assert pool.get_step("s").rewards == {}
    assert (pool.list_feedback().items, pool.dead_letters(), pool.awaited().items) == ([], [], [])


def test_a_rejected_step_leaves_its_signals_waiting(pool):
    pool.add_rewards([Reward(value=1, step_id="s")])
    assert pool.append_steps([step("t", step_id="s", prompt_ids=[-1])])[0].outcome == "rejected"
    assert [one.id for one in pool.awaited().items] == ["s"]
    assert pool.append_steps([step("t", step_id="s")])[0].outcome == "stored"
    assert pool.get_step("s").reward == 1.0


def test_a_step_and_a_trajectory_of_one_name_are_two(pool):
    pool.append_steps([step("same", step_id="same")])
    pool.add_rewards([Reward(value=1, step_id="same"), Reward(value=2, trajectory_id="same")])
    assert (pool.get_step("same").reward, pool.get_trajectory("same").reward) == (1.0, 2.0)
    assert pool.stats().rewards == 2


numbers = itertools.count()
SIGNALS = [
    Reward(value=1.0, step_id="s"),
    Reward(value=0.0, step_id="s", source="judge", name="format"),
    Reward(value=0.5, trajectory_id="t"),
    Feedback(feedback_id="f1", kind="label", name="a", value=[1], step_id="s"),
    Feedback(feedback_id="f2", kind="label", name="b", value="x", trajectory_id="t"),
    Feedback(feedback_id="f3", kind="rating", value=3, step_id="s"),
    Annotation(name="n", values=np.array([1, 2], dtype=np.int32), step_id="s"),
]


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(len(SIGNALS) + 2)))
def test_whatever_the_order_the_end_is_the_same(pool, order):
    """`order` interleaves the signals with the step (7) and the creation of its trajectory (8)."""
    number = next(numbers)  # Keeps the records of one example apart from those of the others.
    renamed = {"s": f"s{number}", "t": f"t{number}"}

    def act(which):
        if which == 7:
            pool.append_steps([step(renamed["t"], step_id=renamed["s"])])
        elif which == 8:
            pool.create_trajectory(NewTrajectory(trajectory_id=renamed["t"]))
        else:
            pool.add_signals([_renamed(SIGNALS[which], renamed)])

    for which in order:
        act(which)
    there = pool.complete_trajectory(renamed["t"], "finished")
    found = pool.get_step(renamed["s"])
    assert (found.rewards, found.labels, found.annotations) == ({"reward": 1.0, "format": 0.0}, {"a": [1]}, ["n"])
    assert (there.rewards, there.labels, there.readiness) == ({"reward": 0.5}, {"b": "x"}, "ready")
    assert pool.dead_letters() == []


def _on(signal, step_id):
    values = {name: getattr(signal, name) for name in signal.__struct_fields__}
    return type(signal)(**{**values, "step_id": step_id})


def _renamed(signal, names):
    values = {name: getattr(signal, name) for name in signal.__struct_fields__}
    for name in ("step_id", "trajectory_id"):
        values[name] = names.get(values[name], values[name])
    if values.get("feedback_id"):
        values["feedback_id"] += names["s"]
    return type(signal)(**values)
