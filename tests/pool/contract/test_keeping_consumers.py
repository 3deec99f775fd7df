"""Retention leaves what a consumer is still to get: from an empty pool on, of every channel, and every kind of unit."""

import pytest

from agentworld.pool.keeping import Retention
from agentworld.records import BatchSpec, Feedback, NewTrajectory
from tests.pool.samples import finished, group, step

KINDS = {
    "step": {"method": "sft", "unit": "step", "size": 5},
    "trajectory": {"method": "sft", "unit": "trajectory", "size": 5},
    "group": {"method": "sft", "unit": "group", "groups": 5},
}


def collected(pool, clock):
    clock.now += 100
    return pool.collect(Retention(max_age=50.0)).trajectories


@pytest.mark.parametrize("has_leased", [False, True])
@pytest.mark.parametrize("own", ["train", "eval"])
@pytest.mark.parametrize("unit", KINDS)
def test_a_consumer_of_a_channel_gets_its_steps_of_any_trajectory(pool, clock, unit, own, has_leased):
    spec = BatchSpec(channel="eval", min_size=1, **KINDS[unit])
    if has_leased:
        group(pool, "first", [1.0], channel="eval", step_changes={"channel": "eval"})
        batch = pool.lease(spec, "c")
        pool.ack(batch.batch_id, batch.epoch)
        assert collected(pool, clock) == 1
    else:
        assert pool.lease(spec, "c") is None
    pool.create_trajectory(NewTrajectory(trajectory_id="t", channel=own, group_id="g", group_size=1))
    pool.append_steps([step("t", step_id="a", channel="train"), step("t", step_id="b", channel="eval")])
    pool.complete_trajectory("t", "finished", 1.0)
    assert collected(pool, clock) == 0
    batch = pool.lease(spec, "c")
    found = [one.step_id for item in batch.items for entry in item.trajectories for one in entry.steps]
    # A step that names no other channel is of its trajectory's.
    assert found == (["b"] if own == "train" else ["a", "b"])
    pool.ack(batch.batch_id, batch.epoch)
    assert collected(pool, clock) == 1


@pytest.mark.parametrize("asks_before", [False, True])
def test_sides_of_a_comparison_stay_for_who_wants_pairs(pool, clock, asks_before):
    spec = BatchSpec(method="dpo", channel="eval")
    if asks_before:
        assert pool.lease(spec, "c") is None
    for name in ("a", "b"):
        finished(pool, name, channel="eval", step_changes={"channel": "eval"})
    if not asks_before:
        assert pool.lease(spec, "c") is None
    pool.add_feedback([Feedback(kind="comparison", feedback_id="f", trajectory_id="a", other_id="b")])
    assert collected(pool, clock) == 0
    batch = pool.lease(spec, "c")
    assert [item.key for item in batch.items] == ["comparison:f"]
    pool.ack(batch.batch_id, batch.epoch)
    assert collected(pool, clock) == 2


def test_who_wants_another_channel_holds_nothing(pool, clock):
    for unit, shape in KINDS.items():
        assert pool.lease(BatchSpec(channel="eval", **shape), unit) is None
    group(pool, "g", [1.0, 0.0])
    assert collected(pool, clock) == 2
