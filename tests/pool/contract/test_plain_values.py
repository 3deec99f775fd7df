"""What callers send of numpy, of tuples and of keys that are no texts: the same on every store, exact or refused."""

import numpy as np
import pytest

from agentworld.errors import AgentWorldError, ConflictError, InvalidRequestError, NotFoundError
from agentworld.records import BatchSpec, Feedback, NewTrajectory, Reward

from ..samples import finished, step

SCALARS = [np.float32(0.1), np.float64(0.1), np.int64(3), np.float16(2), np.array(0.5), np.array(7)]
SOUGHT = ["a\0b", "\ud800", "\udc00x\0", "\U00100800"]


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: f"{value.dtype}-{type(value).__name__}")
def test_a_scalar_of_numpy_is_the_number_that_it_is(pool, value):
    number = value.item()
    pool.create_trajectory(NewTrajectory(trajectory_id="t", task={"n": value}, metadata={"n": value}, priority=value))
    pool.add_signals(
        [
            Reward(value=value, trajectory_id="t", name="x", details={"deep": [value, {"n": value}]}),
            Feedback(kind="label", name="l", value=value, trajectory_id="t"),
            Feedback(kind="rating", value=value, trajectory_id="t"),
        ]
    )
    there = pool.complete_trajectory("t", "finished", value)
    assert (there.rewards, there.labels) == ({"x": number, "reward": number}, {"l": number})
    assert (there.task, there.metadata, there.priority) == ({"n": number}, {"n": number}, number)
    assert type(there.labels["l"]) is type(number)
    assert [one.value for one in pool.list_feedback().items] == [number, number]


@pytest.mark.parametrize("value", [np.float32("nan"), np.float64("inf"), np.array(-np.inf)])
def test_a_scalar_that_is_not_finite_is_refused_as_such(pool, value):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    with pytest.raises(InvalidRequestError, match="finite") as refused:
        pool.add_rewards([Reward(value=value, trajectory_id="t")])
    assert refused.value.path == "rewards[0].value"
    with pytest.raises(InvalidRequestError, match="no number that JSON has") as refused:
        pool.add_rewards([Reward(value=1, trajectory_id="t", details={"a": [1, value]})])
    assert refused.value.path.startswith("rewards[0].details")
    assert pool.get_trajectory("t").rewards == {}


def test_a_tuple_is_a_list_and_is_the_same_when_it_is_sent_again(pool):
    new = NewTrajectory(trajectory_id="t", task={"numbers": (1, (2, 3))}, metadata={"a": (1,)})
    pool.create_trajectory(new)
    label = Feedback(feedback_id="f", kind="label", name="l", value=(1, {"a": (2,)}), trajectory_id="t")
    assert pool.add_feedback([label, label]) == 1
    assert pool.add_feedback([label]) == 0
    there = pool.create_trajectory(new)
    assert (there.task, there.metadata) == ({"numbers": [1, [2, 3]]}, {"a": [1]})
    assert there.labels == {"l": [1, {"a": [2]}]}
    with pytest.raises(ConflictError):
        pool.create_trajectory(NewTrajectory(trajectory_id="t", task={"numbers": (1, (2, 4))}, metadata={"a": (1,)}))


@pytest.mark.parametrize("value", [{1: 2}, {"a": {None: 1}}, {"a": b"x"}, {"a": {1, 2}}, {"a": np.arange(3)}])
def test_what_is_no_json_is_refused_where_it_stands(pool, value):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    for sent, path in (
        (Reward(value=1, trajectory_id="t", details=value), "rewards[0].details"),
        (Feedback(kind="label", name="l", value=value, trajectory_id="t"), "feedback[0].value"),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            pool.add_signals([sent])
        assert refused.value.path.startswith(path)
    with pytest.raises(InvalidRequestError) as refused:
        pool.create_trajectory(NewTrajectory(trajectory_id="t2", metadata=value))
    assert refused.value.path.startswith("metadata")
    assert pool.stats().rewards == 0


def test_a_priority_of_any_size_is_a_number(pool):
    for number, priority in enumerate((2**70, -(2**70), 3)):
        there = pool.create_trajectory(NewTrajectory(trajectory_id=f"t{number}", priority=priority))
        assert (there.priority, type(there.priority)) == (float(priority), float)
    with pytest.raises(InvalidRequestError):
        pool.create_trajectory(NewTrajectory(trajectory_id="t", priority=10**400))


@pytest.mark.parametrize("wrong", [None, {"value": 1, "trajectory_id": "t"}, 5, "t"])
def test_what_is_no_signal_is_refused_by_its_place(pool, wrong):
    with pytest.raises(InvalidRequestError, match="must be a Reward, Feedback or Annotation") as refused:
        pool.add_signals([Reward(value=1, trajectory_id="t"), wrong])
    assert refused.value.path == "signals[1]"
    assert pool.awaited().items == []


def test_listings_of_kinds_and_states_that_are_none_say_so(pool):
    with pytest.raises(InvalidRequestError, match="'like'") as refused:
        pool.list_feedback(kind="like")
    assert refused.value.path == "kind"
    with pytest.raises(InvalidRequestError, match="'shut'") as refused:
        pool.list_groups(state="shut")
    assert refused.value.path == "state"
    with pytest.raises(InvalidRequestError, match="'like'") as refused:
        pool.add_feedback([Feedback(kind="like", trajectory_id="t")])
    assert refused.value.path == "feedback[0].kind"


@pytest.mark.parametrize("sought", SOUGHT, ids=ascii)
def test_ids_that_nothing_can_have_find_nothing(pool, sought):
    finished(pool, "t", reward=1.0, group_id="g")
    batch = pool.lease(BatchSpec(method="sft", size=1), "c")
    for read in (
        lambda: pool.get_trajectory(sought),
        lambda: pool.get_step(sought),
        lambda: pool.get_group(sought),
        lambda: pool.get_batch(sought),
        lambda: pool.complete_trajectory(sought, "finished"),
        lambda: pool.ack(sought, 1),
        lambda: pool.release(sought, 1),
        lambda: pool.extend(sought, 1, 5.0),
    ):
        with pytest.raises(NotFoundError):
            read()
    named = {"trajectory_id": sought}, {"group_id": sought}, {"channel": sought}
    for filters in named:
        assert pool.list_trajectories(**filters).items == []
        assert pool.list_steps(**filters).items == []
    assert pool.list_groups(channel=sought).items == []
    assert pool.list_feedback(trajectory_id=sought).items == pool.list_feedback(step_id=sought).items == []
    assert pool.get_annotations(step_ids=[sought, "s"], names=[sought]) == []
    assert pool.get_annotations(trajectory_id=sought) == []
    assert pool.list_exchanges(sought) == []
    assert pool.list_batches(consumer=sought).items == []
    assert pool.requeue("c", [sought]) == 0
    assert pool.resume("c", [batch.batch_id, sought])["unknown"] == [sought]
    assert pool.awaited(cursor=f"step:{sought}").items == []


def test_where_still_tells_texts_that_engines_cannot_hold_from_others(pool):
    for number, text in enumerate(SOUGHT):
        pool.create_trajectory(NewTrajectory(trajectory_id=f"t{number}", metadata={"a": text}))
    for number, text in enumerate(SOUGHT[1:2] + SOUGHT[3:], start=1):
        found = pool.list_trajectories(where=f"metadata.a == '{text}'").items
        assert [one.metadata["a"] for one in found] == [text], number


def test_what_a_consumer_may_lease_is_counted_alike(pool):
    for number in range(5):
        finished(pool, f"t{number}", reward=1.0)
    spec = BatchSpec(method="sft", size=2)
    batch = pool.lease(spec, "c")
    assert pool.stats().consumers["c"].available == 3
    assert pool.lease(BatchSpec(method="sft", size=1, where="reward > 1"), "only-asked") is None
    assert pool.stats().consumers["only-asked"].available == 5
    pool.release(batch.batch_id, batch.epoch)
    told = pool.stats().consumers["c"]
    assert (told.available, told.leased) == (5, 0)
    pool.delete_trajectories(["t4"])
    assert {name: told.available for name, told in pool.stats().consumers.items()} == {"c": 4, "only-asked": 4}
    assert pool.lease(BatchSpec(method="sft", size=1, channel="empty"), "nobody") is None
    assert "nobody" not in pool.stats().consumers


def test_a_step_is_no_place_for_a_fault_of_anothers(pool):
    pool.append_steps([step("t", step_id="s")])
    with pytest.raises(AgentWorldError):
        pool.add_signals([Reward(value=1, step_id="s"), Reward(value=1, step_id="s", trajectory_id="other")])
    assert pool.get_step("s").rewards == {}
