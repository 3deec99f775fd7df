import pytest

from agentworld.errors import InvalidRequestError, NotFoundError, QueryError, StaleLeaseError
from agentworld.records import BatchSpec, NewTrajectory, Policy, Reward

from ..samples import finished, group, step

GRPO = BatchSpec(method="grpo", groups=1, rollouts=2, lease_seconds=10)


def keys(batch):
    return [item.key for item in batch.items] if batch else None


def test_a_group_is_leased_whole_with_its_content(pool, clock):
    group(pool, "g", [0.0, 1.0, 0.5])
    pool.set_policy(Policy("m", "r", 2))
    batch = pool.lease(GRPO, "c")
    assert (batch.consumer, batch.unit, batch.method, batch.deadline) == ("c", "group", "grpo", clock.now + 10)
    assert batch.policy == Policy("m", "r", 2)
    item = batch.items[0]
    assert (item.key, item.delivery_count) == ("g", 1)
    assert [entry.trajectory.reward for entry in item.trajectories] == [0.0, 1.0, 0.5]
    for entry in item.trajectories:
        assert entry.trajectory == pool.get_trajectory(entry.trajectory.trajectory_id)
        assert entry.steps == [pool.get_step(one.step_id) for one in entry.steps]
        assert entry.steps[0].response_ids is not None
        assert entry.steps[0].response_message is not None


def test_a_half_full_group_blocks_nobody(pool):
    finished(pool, "half-0", reward=1.0, group_id="half")
    pool.create_trajectory(NewTrajectory(trajectory_id="open", group_id="half"))
    finished(pool, "dead", group_id="half", status="failed")
    group(pool, "full", [1.0, 0.0])
    assert keys(pool.lease(GRPO, "c")) == ["full"]
    assert pool.lease(GRPO, "c") is None
    finished(pool, "late", group_id="half", reward=0.0)
    batch = pool.lease(GRPO, "c")
    assert keys(batch) == ["half"]
    assert [entry.trajectory.trajectory_id for entry in batch.items[0].trajectories] == ["half-0", "late"]


def test_a_group_is_delivered_once_with_what_is_ready(pool):
    for number in range(3):
        pool.create_trajectory(NewTrajectory(trajectory_id=f"g-{number}", group_id="g"))
        pool.append_steps([step(f"g-{number}")])
    pool.complete_trajectory("g-0", "finished", 1.0)
    assert pool.lease(GRPO, "c") is None
    pool.complete_trajectory("g-1", "finished", 0.0)
    batch = pool.lease(GRPO, "c")
    assert [entry.trajectory.trajectory_id for entry in batch.items[0].trajectories] == ["g-0", "g-1"]
    pool.ack(batch.batch_id, batch.epoch)
    pool.complete_trajectory("g-2", "finished", 0.5)
    assert pool.lease(GRPO, "c") is None
    whole = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=3), "d")
    assert len(whole.items[0].trajectories) == 3


def test_a_group_with_a_size_is_delivered_whole(pool):
    """However few rollouts are asked for."""
    for number in range(3):
        finished(pool, f"g-{number}", reward=1.0, group_id="g", group_size=4)
    spec = BatchSpec(method="grpo", groups=1, rollouts=1)
    assert pool.lease(spec, "c") is None
    finished(pool, "g-3", reward=0.0, group_id="g", group_size=4)
    assert len(pool.lease(spec, "c").items[0].trajectories) == 4


def test_a_group_whose_time_is_over_is_closed_by_a_lease(pool, clock):
    finished(pool, "g-0", reward=1.0, group_id="g", group_size=4, group_timeout=60.0)
    spec = BatchSpec(method="grpo", groups=1, rollouts=1)
    assert pool.lease(spec, "c") is None
    clock.now += 61
    assert keys(pool.lease(spec, "c")) == ["g"]


def test_an_unrewarded_rollout_does_not_count(pool):
    group(pool, "g", [1.0, None])
    assert pool.lease(GRPO, "c") is None
    pool.add_rewards([Reward(value=0.0, trajectory_id="g-1")])
    assert keys(pool.lease(GRPO, "c")) == ["g"]


def test_consumers_each_see_everything_and_share_under_one_name(pool):
    group(pool, "a", [1.0, 0.0])
    group(pool, "b", [1.0, 0.0])
    assert [keys(pool.lease(GRPO, name)) for name in ("x", "x", "x", "y")] == [["a"], ["b"], None, ["a"]]


def test_acknowledged_units_do_not_come_back(pool, clock):
    group(pool, "g", [1.0, 0.0])
    batch = pool.lease(GRPO, "c")
    pool.ack(batch.batch_id, batch.epoch)
    pool.ack(batch.batch_id, batch.epoch)
    clock.now += 1000
    assert pool.lease(GRPO, "c") is None
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.stats().batches == {"acked": 1}
    with pytest.raises(StaleLeaseError):
        pool.release(batch.batch_id, batch.epoch)
    with pytest.raises(StaleLeaseError):
        pool.extend(batch.batch_id, batch.epoch, 5)


def test_released_units_come_back_at_once_under_a_new_epoch(pool):
    group(pool, "g", [1.0, 0.0])
    first = pool.lease(GRPO, "c")
    pool.release(first.batch_id, first.epoch)
    pool.release(first.batch_id, first.epoch)
    second = pool.lease(GRPO, "c")
    assert (keys(second), second.items[0].delivery_count) == (["g"], 2)
    assert second.epoch > first.epoch
    with pytest.raises(StaleLeaseError):
        pool.ack(first.batch_id, first.epoch)
    pool.ack(second.batch_id, second.epoch)


def test_an_expired_lease_comes_back_and_its_holder_is_fenced_off(pool, clock):
    group(pool, "g", [1.0, 0.0])
    first = pool.lease(GRPO, "c")
    clock.now += 9.5
    assert pool.lease(GRPO, "c") is None
    clock.now += 0.5
    for call in (pool.ack, lambda *lease: pool.extend(*lease, 5)):
        with pytest.raises(StaleLeaseError):
            call(first.batch_id, first.epoch)
    second = pool.lease(GRPO, "c")
    assert (keys(second), second.items[0].delivery_count) == (["g"], 2)
    with pytest.raises(StaleLeaseError):
        pool.ack(first.batch_id, first.epoch)
    pool.release(first.batch_id, first.epoch)
    assert pool.lease(GRPO, "c") is None
    pool.ack(second.batch_id, second.epoch)
    kinds = [event.kind for event in pool.events() if event.kind.startswith("batch.")]
    assert kinds == ["batch.leased", "batch.expired", "batch.leased", "batch.acked"]
    assert pool.stats().batches == {"expired": 1, "acked": 1}


def test_extending_moves_the_deadline(pool, clock):
    group(pool, "g", [1.0, 0.0])
    batch = pool.lease(GRPO, "c")
    clock.now += 9
    assert pool.extend(batch.batch_id, batch.epoch, 20) == clock.now + 20
    clock.now += 19
    assert pool.lease(GRPO, "c") is None
    pool.ack(batch.batch_id, batch.epoch)
    with pytest.raises(InvalidRequestError):
        pool.extend(batch.batch_id, batch.epoch, 0)


@pytest.mark.parametrize("call", ["ack", "release", "extend"])
def test_another_epoch_is_refused(pool, call):
    group(pool, "g", [1.0, 0.0])
    batch = pool.lease(GRPO, "c")
    extra = (5.0,) if call == "extend" else ()
    with pytest.raises(StaleLeaseError):
        getattr(pool, call)(batch.batch_id, batch.epoch + 1, *extra)
    with pytest.raises(NotFoundError):
        getattr(pool, call)("bat_gone", 1, *extra)
    pool.ack(batch.batch_id, batch.epoch)


def test_resume_acknowledges_what_was_applied_and_releases_the_rest(pool):
    for name in "abc":
        group(pool, name, [1.0, 0.0])
    first, second, third = (pool.lease(GRPO, "c") for _ in range(3))
    pool.ack(first.batch_id, first.epoch)
    result = pool.resume("c", [first.batch_id, second.batch_id, second.batch_id, "bat_gone"])
    assert result == {
        "acknowledged": [first.batch_id, second.batch_id],
        "released": [third.batch_id],
        "unknown": ["bat_gone"],
    }
    assert pool.resume("c", [second.batch_id])["released"] == []
    with pytest.raises(StaleLeaseError):
        pool.ack(third.batch_id, third.epoch)
    again = pool.lease(GRPO, "c")
    assert (keys(again), pool.lease(GRPO, "c")) == (["c"], None)
    assert again.epoch > third.epoch


def test_an_applied_batch_whose_lease_ran_out_is_not_trained_twice(pool, clock):
    group(pool, "a", [1.0, 0.0])
    batch = pool.lease(GRPO, "c")
    clock.now += 100
    assert pool.lease(BatchSpec(method="grpo", groups=5, rollouts=2), "c") is None
    assert pool.resume("c", [batch.batch_id])["acknowledged"] == [batch.batch_id]
    assert pool.lease(GRPO, "c") is None


def test_an_applied_batch_that_its_consumer_leased_again_is_not_trained_twice(pool, clock):
    group(pool, "a", [1.0, 0.0])
    group(pool, "b", [1.0, 0.0])
    applied = pool.lease(GRPO, "c")
    clock.now += 100
    again, other = (pool.lease(GRPO, "c") for _ in range(2))
    assert [keys(batch) for batch in (applied, again, other)] == [["a"], ["a"], ["b"]]
    # The trainer dies after it saved the checkpoint with the first batch.
    assert pool.resume("c", [applied.batch_id]) == {
        "acknowledged": [applied.batch_id],
        "released": [again.batch_id, other.batch_id],
        "unknown": [],
    }
    assert [keys(batch) for batch in (pool.lease(GRPO, "c"), pool.lease(GRPO, "c"))] == [["b"], None]


def test_an_applied_batch_does_not_take_units_from_their_new_holder(pool, clock):
    group(pool, "a", [1.0, 0.0])
    group(pool, "b", [1.0, 0.0])
    lost = pool.lease(BatchSpec(method="grpo", groups=2, rollouts=2, lease_seconds=10), "c")
    clock.now += 100
    holder = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=2, lease_seconds=500), "c")
    pool.ack(holder.batch_id, holder.epoch)
    assert keys(holder) == ["a"]
    assert pool.resume("c", [lost.batch_id])["acknowledged"] == [lost.batch_id]
    assert pool.lease(GRPO, "c") is None


def test_another_consumers_batch_is_unknown_to_resume(pool):
    group(pool, "a", [1.0, 0.0])
    batch = pool.lease(GRPO, "c")
    assert pool.resume("d", [batch.batch_id])["unknown"] == [batch.batch_id]
    pool.ack(batch.batch_id, batch.epoch)


def test_sizes_and_minimum(pool):
    for number in range(3):
        finished(pool, f"t{number}", reward=1.0)
    assert pool.lease(BatchSpec(method="sft", size=4), "c") is None
    batch = pool.lease(BatchSpec(method="sft", size=4, min_size=2), "c")
    assert keys(batch) == ["t0", "t1", "t2"]


def test_supervised_training_takes_unrewarded_trajectories_others_do_not(pool):
    finished(pool, "plain")
    finished(pool, "failed", status="failed")
    finished(pool, "rewarded", reward=0.0)
    assert keys(pool.lease(BatchSpec(method="sft", size=2), "a")) == ["plain", "rewarded"]
    assert keys(pool.lease(BatchSpec(method="reinforce", size=1), "b")) == ["rewarded"]
    assert pool.lease(BatchSpec(method="reinforce", size=1), "b") is None
    assert keys(pool.lease(BatchSpec(method="sft", size=1, require=("tokens", "reward")), "c")) == ["rewarded"]


def test_units_of_steps(pool):
    names = finished(pool, "t", reward=1.0, steps=3)
    batch = pool.lease(BatchSpec(method="x", unit="step", size=2, where="step_index >= 1"), "c")
    assert keys(batch) == names[1:]
    assert [len(item.trajectories[0].steps) for item in batch.items] == [1, 1]
    assert batch.items[0].trajectories[0].steps[0].step_id == names[1]
    assert batch.items[0].trajectories[0].trajectory.trajectory_id == "t"


def test_order_is_fifo_freshest_or_seeded(pool):
    names = [f"t{number}" for number in range(8)]
    for name in names:
        finished(pool, name, reward=1.0)
    spec = {"method": "sft", "size": 8}
    assert keys(pool.lease(BatchSpec(**spec), "a")) == names
    assert keys(pool.lease(BatchSpec(**spec, order="freshest"), "b")) == names[::-1]
    shuffled = [
        keys(pool.lease(BatchSpec(**spec, order="random", seed=seed), f"c{n}")) for n, seed in enumerate([1, 1, 3])
    ]
    assert sorted(shuffled[0]) == names
    assert shuffled[0] == shuffled[1] != shuffled[2]


def test_channels_and_excluded_steps_are_left_out(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    kept, judged, aborted = step("t"), step("t", channel="judge"), step("t", finish_reason="abort")
    pool.append_steps([kept, judged, aborted])
    pool.complete_trajectory("t", "finished", 1.0)
    finished(pool, "v", reward=1.0, channel="val")
    finished(pool, "nothing", reward=1.0, step_changes={"finish_reason": "abort"})
    batch = pool.lease(BatchSpec(method="sft", size=5, min_size=1), "c")
    assert keys(batch) == ["t"]
    assert [one.step_id for one in batch.items[0].trajectories[0].steps] == [kept.step_id]
    assert keys(pool.lease(BatchSpec(method="sft", size=5, min_size=1, channel="judge"), "c2")) == ["t"]
    assert keys(pool.lease(BatchSpec(method="sft", size=5, min_size=1, channel="val"), "c")) == ["v"]


def test_steps_without_ids_are_refused_for_token_training(pool):
    bare = {"prompt_ids": None, "response_ids": None, "response_logprobs": None}
    pool.create_trajectory(NewTrajectory(trajectory_id="mixed"))
    pool.append_steps([step("mixed"), step("mixed", **bare)])
    pool.complete_trajectory("mixed", "finished", 1.0)
    finished(pool, "text", step_changes=bare)
    finished(pool, "ids", step_changes={"prompt_messages": None, "response_message": None})
    spec = {"method": "sft", "size": 9, "min_size": 1}
    assert keys(pool.lease(BatchSpec(**spec), "a")) == ["ids"]
    assert keys(pool.lease(BatchSpec(**spec, require=("messages",)), "b")) == ["mixed", "text"]
    assert pool.lease(BatchSpec(**spec, require=("tokens", "messages")), "c") is None
    assert keys(pool.lease(BatchSpec(**spec, require=("logprobs",)), "d")) == ["ids"]


def test_where_gates_what_is_served(pool):
    pool.set_policy(Policy("m", "r", 0))
    group(pool, "old", [1.0, 0.0])
    pool.set_policy(Policy("m", "r", 3))
    group(pool, "new", [1.0, 0.0], step_changes={"policy": Policy("m", "r", 2)})
    spec = BatchSpec(method="grpo", groups=1, rollouts=2, where="staleness <= 2")
    assert keys(pool.lease(spec, "c")) == ["new"]
    assert pool.lease(spec, "c") is None
    narrow = BatchSpec(method="grpo", groups=1, rollouts=1, where="reward > 0.5")
    batch = pool.lease(narrow, "d")
    assert [entry.trajectory.trajectory_id for entry in batch.items[0].trajectories] == ["old-0"]


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (BatchSpec(method="grpo", where="rewrd > 1"), QueryError),
        (BatchSpec(method="grpo", require=("gold",)), InvalidRequestError),
        (BatchSpec(method="unknown"), InvalidRequestError),
        (BatchSpec(method="grpo", size=3), InvalidRequestError),
        (BatchSpec(method="sft", size=2, min_size=3), InvalidRequestError),
    ],
)
def test_a_bad_spec_is_refused(pool, spec, error):
    with pytest.raises(error):
        pool.lease(spec, "c")
    with pytest.raises(InvalidRequestError):
        pool.lease(BatchSpec(), "not a name")
