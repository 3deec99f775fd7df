"""Preference pairs of one spec: comparisons of steps beside comparisons of trajectories, filtered by trajectory."""

import pytest

from agentworld.records import BatchSpec, Feedback, Reward
from tests.pool.samples import finished


def compare(pool, name, better, worse, kind):
    sides = {f"{kind}_id": better, "other_id": worse}
    pool.add_feedback([Feedback(kind="comparison", feedback_id=name, **sides)])


def test_compared_steps_and_compared_trajectories_do_not_mix(pool):
    """Numbers of steps and of trajectories in a store are two sequences, and a batch may hold units of both."""
    steps = {name: finished(pool, name, reward=1.0, steps=2) for name in ("a", "b", "c", "d")}
    pool.add_rewards([Reward(step_id=one, value=5.0, name="turn") for own in steps.values() for one in own])
    # Each step of the earlier trajectories is once the better side, so that every number of a trajectory is met.
    compared = [(steps["a"][0], steps["b"][0]), (steps["a"][1], steps["b"][1])]
    for number, (better, worse) in enumerate(compared):
        compare(pool, f"steps{number}", better, worse, "step")
    compare(pool, "ab", "a", "b", "trajectory")
    compare(pool, "cd", "c", "d", "trajectory")
    batch = pool.lease(BatchSpec(method="dpo", size=4), "c")
    found = {item.key: item for item in batch.items}
    for number, sides in enumerate(compared):
        item = found[f"comparison:steps{number}"]
        assert [[step.step_id for step in entry.steps] for entry in item.trajectories] == [[side] for side in sides]
        assert set(item.rewards) - steps.keys() == set(sides)
    for name in ("ab", "cd"):
        item = found[f"comparison:{name}"]
        assert [[step.step_id for step in entry.steps] for entry in item.trajectories] == [steps[t] for t in name]
        assert set(item.rewards) == {*name, *steps[name[0]], *steps[name[1]]}


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ("step_count >= 2", True),
        ("step_count > 2", False),
        ("has(reward)", True),
        ("status == 'failed'", False),
        ("completed_at > 0", True),
        ("reward.reward > 1", False),
    ],
)
def test_where_filters_the_trajectories_of_compared_steps(pool, where, fits):
    better, _ = finished(pool, "a", reward=1.0, steps=2)
    worse, _ = finished(pool, "b", reward=1.0, steps=2)
    compare(pool, "f", better, worse, "step")
    batch = pool.lease(BatchSpec(method="dpo", where=where), "c")
    assert (batch is not None) == fits


def test_what_its_source_took_back_is_no_pair_from_then_on(pool):
    for name in "abc":
        finished(pool, name, reward=1.0)
    sides = {"kind": "comparison", "trajectory_id": "a", "other_id": "b"}
    pool.add_feedback([Feedback(feedback_id=source, source=source, **sides) for source in ("anna", "ben")])
    compare(pool, "bc", "b", "c", "trajectory")
    held = pool.lease(BatchSpec(method="dpo", size=1), "c")
    pool.release(held.batch_id, held.epoch)
    undo = Feedback(value=-0.0, source="anna", **sides)
    for _ in range(2):
        pool.add_feedback([undo])
    batch = pool.lease(BatchSpec(method="dpo", size=9, min_size=1), "c")
    assert sorted(item.key for item in batch.items) == ["comparison:bc", "comparison:ben"]
    pool.release(batch.batch_id, batch.epoch)
    pool.add_feedback([Feedback(feedback_id="again", source="anna", value=3, **sides)])
    for consumer in ("c", "new"):
        batch = pool.lease(BatchSpec(method="dpo", size=3), consumer)
        assert {item.key for item in batch.items} == {"comparison:bc", "comparison:ben", "comparison:again"}
