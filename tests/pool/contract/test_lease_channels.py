"""Units whose steps are in several channels: one unit in each."""

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.records import BatchSpec, NewTrajectory

from ..samples import finished, step


def keys(batch):
    return [item.key for item in batch.items] if batch else None


def single(**settings):
    return BatchSpec(method="reinforce", size=1, lease_seconds=10, **settings)


def test_groups_are_served_in_every_channel_that_their_steps_are_in(pool):
    for name in ("a", "b"):
        pool.create_trajectory(NewTrajectory(trajectory_id=name, group_id="g", group_size=2))
        pool.append_steps([step(name, step_id=f"{name}-train"), step(name, step_id=f"{name}-judge", channel="judge")])
        pool.complete_trajectory(name, "finished", 1.0)
    finished(pool, "c", reward=1.0, group_id="plain", group_size=1)
    spec = BatchSpec(method="grpo", groups=1, rollouts=1, channel="judge")
    batch = pool.lease(spec, "x")
    assert [[one.step_id for one in entry.steps] for entry in batch.items[0].trajectories] == [["a-judge"], ["b-judge"]]
    assert pool.lease(spec, "x") is None
    # In the other channel it is another unit, whose steps nobody had yet.
    train = BatchSpec(method="grpo", groups=2, rollouts=1, lease_seconds=50)
    other = pool.lease(train, "x")
    assert keys(other) == ["g", "plain"]
    assert [one.step_id for entry in other.items[0].trajectories for one in entry.steps] == ["a-train", "b-train"]
    pool.ack(batch.batch_id, batch.epoch)
    pool.release(other.batch_id, other.epoch)
    assert keys(pool.lease(train, "x")) == ["g", "plain"]
    assert pool.lease(spec, "x") is None


def test_a_trajectory_of_two_channels_is_poisoned_and_acknowledged_in_each_by_itself(pool, clock):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    pool.append_steps([step("t", step_id="t-train"), step("t", step_id="t-judge", channel="judge")])
    pool.complete_trajectory("t", "finished", 1.0)
    once = {channel: single(channel=channel, max_deliveries=1) for channel in ("train", "judge")}
    assert [keys(pool.lease(spec, "c")) for spec in once.values()] == [["t"], ["t"]]
    clock.now += 10
    assert pool.lease(once["judge"], "c") is None
    assert [unit.key for unit in pool.poisoned("c")] == ["t"]
    assert keys(pool.lease(single(), "c")) == ["t"]
    assert pool.requeue("c", ["t"]) == 1
    assert keys(pool.lease(once["judge"], "c")) == ["t"]
    assert pool.check() == []


@pytest.mark.parametrize("channel", ["judge/second opinion", "Übung", "-", "c" * 256])
def test_a_channel_that_steps_can_be_in_can_be_leased(pool, channel):
    pool.create_trajectory(NewTrajectory(trajectory_id="t", channel=channel))
    pool.append_steps([step("t", channel=channel)])
    pool.complete_trajectory("t", "finished", 1.0)
    batch = pool.lease(single(channel=channel), "c")
    assert (keys(batch), pool.get_batch(batch.batch_id).channel) == (["t"], channel)


@pytest.mark.parametrize("channel", ["c" * 257, "a\0", "\ud800"])
def test_what_is_no_name_is_no_channel_to_lease(pool, channel):
    with pytest.raises(InvalidRequestError, match="name") as caught:
        pool.lease(single(channel=channel), "c")
    assert caught.value.path == "channel"


def test_a_trajectory_that_is_declared_in_another_channel_counts_its_steps_there(pool):
    other = {"channel": "val", "response_logprobs": None}
    pool.append_steps([step("a", step_id="a-1", **other), step("a", step_id="a-2", **other), step("b", **other)])
    for name in ("a", "b"):
        pool.create_trajectory(NewTrajectory(trajectory_id=name))  # In the channel train.
    pool.append_steps([step("a", step_id="a-3")])
    assert [pool.get_trajectory(name).sampled_tokens for name in ("a", "b")] == [2, 0]
    for name in ("a", "b"):
        pool.complete_trajectory(name, "finished", 1.0)
    assert pool.check() == []
    spec = BatchSpec(method="reinforce", size=2, min_size=1, require=("logprobs",))
    batch = pool.lease(spec, "x")
    assert [[one.step_id for one in item.trajectories[0].steps] for item in batch.items] == [["a-3"]]
    assert pool.lease(spec, "x") is None
    everything = BatchSpec(method="sft", size=2, min_size=1, channel="val")
    assert keys(pool.lease(everything, "x")) == ["a", "b"]
