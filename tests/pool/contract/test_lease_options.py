"""Orders, staleness, equal groups, pairs, requirements, poisoned units, and what is kept of a batch."""

import numpy as np
import pytest

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool.sql import taking
from agentworld.records import Annotation, BatchSpec, Feedback, NewTrajectory, Policy, Reward

from ..samples import finished, group, step


def keys(batch):
    return [item.key for item in batch.items] if batch else None


def events(pool, kind):
    return [event.data for event in pool.events(limit=1000) if event.kind == kind]


def single(**settings):
    return BatchSpec(method="reinforce", size=1, lease_seconds=10, **settings)


# --- order ------------------------------------------------------------------------------------------------------------


def test_priority_is_highest_first_then_oldest(pool):
    for name, priority in (("low", -1.0), ("first", 2.5), ("none", 0.0), ("second", 2.5)):
        finished(pool, name, reward=1.0, priority=priority)
    spec = BatchSpec(method="sft", size=4, order="priority")
    assert keys(pool.lease(spec, "c")) == ["first", "second", "none", "low"]


def test_a_group_has_its_highest_priority(pool):
    group(pool, "plain", [1.0, 0.0], priority=1.0)
    finished(pool, "a", reward=1.0, group_id="mixed", group_size=2, priority=0.0)
    finished(pool, "b", reward=0.0, group_id="mixed", group_size=2, priority=3.0)
    spec = BatchSpec(method="grpo", groups=1, rollouts=2, order="priority")
    assert [keys(pool.lease(spec, "c")) for _ in range(3)] == [["mixed"], ["plain"], None]


@pytest.mark.parametrize("order", ["fifo", "freshest", "random", "priority"])
def test_what_comes_later_and_what_comes_back_keep_their_places(pool, order):
    names = [f"t{number}" for number in range(6)]
    for name in names[:4]:
        finished(pool, name, reward=1.0, priority=float(-names.index(name)))
    spec = single(order=order, seed=4)
    first = pool.lease(spec, "c")
    for name in names[4:]:
        finished(pool, name, reward=1.0, priority=float(-names.index(name)))
    pool.release(first.batch_id, first.epoch)
    seen = []
    while (batch := pool.lease(spec, "c")) is not None:
        seen += keys(batch)
    assert sorted(seen) == names
    assert seen == keys(pool.lease(BatchSpec(method="reinforce", size=6, order=order, seed=4), "other"))
    if order == "freshest":
        assert seen == names[::-1]
    elif order != "random":
        assert seen == names


def test_another_seed_is_another_order_for_the_same_consumer(pool):
    names = {f"t{number:02}" for number in range(24)}
    for name in sorted(names):
        finished(pool, name, reward=1.0)
    orders = []
    for seed in (5, 6, 5):
        batch = pool.lease(BatchSpec(method="reinforce", size=24, order="random", seed=seed), "c")
        orders.append(keys(batch))
        pool.release(batch.batch_id, batch.epoch)
    assert orders[0] == orders[2] != orders[1]
    assert set(orders[0]) == set(orders[1]) == names


def test_steps_come_in_the_order_in_which_their_trajectories_became_ready(pool):
    for name in ("a", "b"):
        pool.create_trajectory(NewTrajectory(trajectory_id=name))
    pool.append_steps([step("a", step_id="a0"), step("b", step_id="b0"), step("a", step_id="a1")])
    pool.complete_trajectory("b", "finished", 1.0)
    pool.complete_trajectory("a", "finished", 1.0)
    spec = BatchSpec(method="x", unit="step", size=3)
    assert keys(pool.lease(spec, "c")) == ["b0", "a0", "a1"]
    assert keys(pool.lease(BatchSpec(method="x", unit="step", size=3, order="freshest"), "d")) == ["a1", "a0", "b0"]


def test_many_units_that_do_not_match_starve_nobody(pool, monkeypatch):
    """More than a lease looks at at once: those in front, and those that come later."""
    monkeypatch.setattr(taking, "TAKE_ROWS", 8)
    names = [f"t{number:02}" for number in range(60)]
    pool.append_steps([step(name) for name in names])
    for name in names:
        pool.complete_trajectory(name, "finished", float(name in ("t07", "t55")))
    spec = single(where="reward == 1")
    assert [keys(pool.lease(spec, "c")) for _ in range(3)] == [["t07"], ["t55"], None]
    finished(pool, "late", reward=1.0)
    pool.add_rewards([Reward(value=1.0, trajectory_id="t30")])
    assert sorted([*keys(pool.lease(spec, "c")), *keys(pool.lease(spec, "c"))]) == ["late", "t30"]
    assert pool.lease(spec, "c") is None
    assert len(pool.lease(BatchSpec(method="reinforce", size=58, min_size=1), "c").items) == 57


# --- what is dropped, and what waits ----------------------------------------------------------------------------------


def policies(pool, version):
    pool.set_policy(Policy("m", "r", version))


@pytest.mark.parametrize("stale", ["drop", "wait"])
def test_stale_units_are_dropped_or_wait(pool, stale):
    policies(pool, 0)
    finished(pool, "old", reward=1.0)
    finished(pool, "new", reward=1.0, step_changes={"policy": Policy("m", "r", 3)})
    policies(pool, 4)
    spec = single(max_staleness=1, stale=stale)
    assert [keys(pool.lease(spec, "c")) for _ in range(2)] == [["new"], None]
    assert events(pool, "batch.dropped") == (
        [{"consumer": "c", "unit": "trajectory", "stale": 1}] if stale == "drop" else []
    )
    # Waiting for good, or for another spec.
    assert keys(pool.lease(single(), "c")) == (None if stale == "drop" else ["old"])
    assert keys(pool.lease(single(), "other")) == ["old"]


def test_a_group_is_as_stale_as_its_stalest_rollout(pool):
    policies(pool, 5)
    for name, version in (("a", 5), ("b", 2)):
        finished(pool, name, reward=1.0, group_id="g", group_size=2, step_changes={"policy": Policy("m", "r", version)})
    spec = {"method": "grpo", "groups": 1, "rollouts": 2, "stale": "wait"}
    assert pool.lease(BatchSpec(**spec, max_staleness=2), "c") is None
    assert keys(pool.lease(BatchSpec(**spec, max_staleness=3), "c")) == ["g"]


def test_another_run_is_too_stale_at_any_number(pool):
    finished(pool, "t", reward=1.0)
    pool.set_policy(Policy("m", "another", 0))
    assert pool.lease(single(max_staleness=1000, stale="wait"), "c") is None
    policies(pool, 1)
    assert keys(pool.lease(single(max_staleness=1000, stale="wait"), "c")) == ["t"]


def rewarded(pool, name, shaped, correct):
    group(pool, name, shaped)
    for number, value in enumerate(correct):
        if value is not None:
            pool.add_rewards([Reward(value=value, trajectory_id=f"{name}-{number}", name="correct")])


def test_groups_of_equal_correctness_are_dropped_whatever_their_shaped_reward(pool):
    rewarded(pool, "equal", [0.2, 0.9], [1.0, 1.0])
    rewarded(pool, "mixed", [0.5, 0.5], [1.0, 0.0])
    rewarded(pool, "unknown", [0.5, 0.6], [None, None])
    spec = BatchSpec(method="grpo", groups=1, rollouts=2, skip_equal="correct")
    assert [keys(pool.lease(spec, "c")) for _ in range(3)] == [["mixed"], ["unknown"], None]
    assert events(pool, "batch.dropped") == [{"consumer": "c", "unit": "group", "equal": 1}]
    assert keys(pool.lease(BatchSpec(method="grpo", groups=1, rollouts=2), "other")) == ["equal"]


def test_a_unit_that_is_never_acknowledged_is_poisoned_until_it_is_requeued(pool, clock):
    finished(pool, "bad", reward=1.0)
    finished(pool, "good", reward=1.0)
    spec = single(max_deliveries=3)
    seen = []
    for _ in range(3):
        batch = pool.lease(spec, "c")
        seen.append((keys(batch), batch.items[0].delivery_count))
        clock.now += 11
    assert seen == [(["bad"], 1), (["bad"], 2), (["bad"], 3)]
    good = pool.lease(spec, "c")
    assert keys(good) == ["good"]
    pool.ack(good.batch_id, good.epoch)
    assert pool.lease(spec, "c") is None
    [poisoned] = pool.poisoned("c")
    assert (poisoned.unit, poisoned.key, poisoned.deliveries) == ("trajectory", "bad", 3)
    assert "3 times" in poisoned.reason
    assert pool.poisoned("other") == []
    assert events(pool, "unit.poisoned") == [{"consumer": "c", "unit": "trajectory", "key": "bad", "deliveries": 3}]
    assert pool.requeue("c", ["good", "gone"]) == 0
    assert pool.requeue("c", ["bad", "gone"]) == 1
    assert pool.poisoned("c") == []
    batch = pool.lease(spec, "c")
    assert (keys(batch), batch.items[0].delivery_count) == (["bad"], 1)
    assert events(pool, "unit.requeued") == [{"consumer": "c", "unit": "trajectory", "key": "bad"}]


def test_a_poisoned_unit_that_was_applied_all_the_same_stays_away(pool, clock):
    """Its trainer was slow, not dead."""
    finished(pool, "slow", reward=1.0)
    batch = pool.lease(single(max_deliveries=1), "c")
    clock.now += 11
    assert pool.lease(single(max_deliveries=1), "c") is None
    assert len(pool.poisoned("c")) == 1
    assert pool.resume("c", [batch.batch_id])["acknowledged"] == [batch.batch_id]
    assert (pool.poisoned("c"), pool.requeue("c", ["slow"])) == ([], 0)
    assert pool.lease(single(), "c") is None


# --- pairs ------------------------------------------------------------------------------------------------------------

DPO = BatchSpec(method="dpo", size=1)


def sides(batch):
    return [[entry.trajectory.trajectory_id for entry in item.trajectories] for item in batch.items] if batch else None


def prefer(pool, better, worse, **settings):
    pool.add_feedback([Feedback(kind="comparison", other_id=worse, **{"trajectory_id": better, **settings})])


def test_pairs_from_comparisons_have_the_preferred_one_first(pool):
    for name in ("a", "b", "c"):
        finished(pool, name)
    prefer(pool, "b", "a", feedback_id="f1")
    prefer(pool, "c", "nobody", feedback_id="f2")
    batch = pool.lease(DPO, "x")
    assert (keys(batch), sides(batch)) == (["comparison:f1"], [["b", "a"]])
    assert pool.lease(DPO, "x") is None
    pool.ack(batch.batch_id, batch.epoch)
    finished(pool, "nobody")
    assert sides(pool.lease(DPO, "x")) == [["c", "nobody"]]
    assert pool.lease(DPO, "x") is None


def test_compared_steps_are_single_steps(pool):
    first, second = finished(pool, "t", steps=3)[1:]
    prefer(pool, None, second, step_id=first)
    [item] = pool.lease(DPO, "x").items
    assert [[one.step_id for one in entry.steps] for entry in item.trajectories] == [[first], [second]]


def test_pairs_from_groups_are_the_best_and_the_worst(pool):
    group(pool, "wide", [0.5, 0.1, 0.9, 0.1])
    group(pool, "flat", [0.5, 0.5])
    group(pool, "narrow", [0.5, 0.7])
    batch = pool.lease(BatchSpec(method="dpo", size=1, pair_margin=0.5), "x")
    assert (keys(batch), sides(batch)) == (["group:wide"], [["wide-2", "wide-1"]])
    assert pool.lease(BatchSpec(method="dpo", size=1, pair_margin=0.5), "x") is None
    assert sides(pool.lease(DPO, "x")) == [["narrow-1", "narrow-0"]]
    assert pool.lease(DPO, "x") is None


def test_where_filters_both_sides_of_a_pair(pool):
    for name, agent in (("a", "x"), ("b", "x"), ("c", "y")):
        finished(pool, name, agent=agent)
    prefer(pool, "a", "c")
    prefer(pool, "b", "a")
    spec = BatchSpec(method="dpo", size=1, where="agent == 'x'")
    assert [sides(pool.lease(spec, "c")) for _ in range(2)] == [[["b", "a"]], None]


# --- what units must have, and what comes with them -------------------------------------------------------------------


def test_required_annotations_come_with_the_batch(pool):
    ids = finished(pool, "t", reward=1.0, steps=2)
    finished(pool, "bare", reward=1.0)
    spec = single(require=("tokens", "annotation.teacher"))
    pool.add_annotations([Annotation(name="teacher", values=[-0.5, -1.0], step_id=ids[0])])
    assert pool.lease(spec, "c") is None
    pool.add_annotations([Annotation(name="teacher", values=np.asarray([-2.0, -0.25]), step_id=ids[1])])
    pool.add_annotations([Annotation(name="other", values=[1.0, 2.0], step_id=ids[1])])
    [item] = pool.lease(spec, "c").items
    assert item.trajectories[0].annotations == {ids[0]: {"teacher": [-0.5, -1.0]}, ids[1]: {"teacher": [-2.0, -0.25]}}
    assert pool.lease(spec, "c") is None


def test_an_annotation_of_the_trajectory_will_do(pool):
    finished(pool, "t", reward=1.0)
    pool.add_annotations([Annotation(name="value", values=[0.5], trajectory_id="t")])
    [item] = pool.lease(single(require=("annotation.value",)), "c").items
    assert item.trajectories[0].annotations == {"t": {"value": [0.5]}}


def test_labels_can_be_required(pool):
    [on_step] = finished(pool, "a", reward=1.0)
    finished(pool, "b", reward=1.0)
    finished(pool, "c", reward=1.0)
    pool.add_feedback(
        [
            Feedback(kind="label", name="quality", value="good", step_id=on_step),
            Feedback(kind="label", name="quality", value=0, trajectory_id="b"),
        ]
    )
    spec = BatchSpec(method="reinforce", size=3, min_size=1, require=("label.quality",))
    assert keys(pool.lease(spec, "x")) == ["a", "b"]


def test_the_denominator_counts_each_sampled_token_once(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    pool.append_steps(
        [
            step("t", response_ids=[4, 5, 6], response_logprobs=[-1.0] * 3),
            step("t", response_ids=[7, 8], response_logprobs=[-1.0] * 2, response_mask=[1, 0]),
            step("t", finish_reason="abort"),
        ]
    )
    pool.complete_trajectory("t", "finished", 1.0)
    [entry] = pool.lease(single(), "c").items[0].trajectories
    assert (entry.loss_denominator, entry.trained, len(entry.steps)) == (4, True, 2)


def test_masked_rollouts_count_in_their_group_and_are_not_trained(pool):
    settings = {"group_id": "g", "group_size": 3, "group_failures": "mask"}
    finished(pool, "good", reward=1.0, **settings)
    finished(pool, "failed", status="failed", **settings)
    pool.create_trajectory(NewTrajectory(trajectory_id="nothing", **settings))
    pool.complete_trajectory("nothing", "abandoned")
    [item] = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=3), "c").items
    assert [(e.trajectory.trajectory_id, e.trained, e.trajectory.reward) for e in item.trajectories] == [
        ("good", True, 1.0),
        ("failed", False, 0.0),
        ("nothing", False, 0.0),
    ]
    assert keys(pool.lease(BatchSpec(method="reinforce", size=3, min_size=1), "c")) == ["good"]


# --- what is kept of a batch ------------------------------------------------------------------------------------------


def test_rewards_are_kept_as_they_were_at_the_lease(pool, clock):
    [step_id] = finished(pool, "t", reward=0.25)
    pool.add_rewards(
        [Reward(value=2.0, trajectory_id="t", name="shaped"), Reward(value=0.5, step_id=step_id, name="p")]
    )
    batch = pool.lease(single(), "c")
    pool.add_rewards([Reward(value=9.0, trajectory_id="t"), Reward(value=8.0, step_id=step_id, name="p")])
    rewards = {"t": {"reward": 0.25, "shaped": 2.0}, step_id: {"p": 0.5}}
    assert batch.items[0].rewards == rewards
    assert batch.items[0].trajectories[0].trajectory.reward == 0.25
    clock.now += 1
    pool.ack(batch.batch_id, batch.epoch)
    record = pool.get_batch(batch.batch_id)
    assert [(unit.key, unit.rewards) for unit in record.units] == [("t", rewards)]
    assert (record.consumer, record.unit, record.method, record.channel) == ("c", "trajectory", "reinforce", "train")
    assert (record.state, record.epoch, record.unit_count) == ("acked", batch.epoch, 1)
    assert (record.created_at, record.deadline, record.ended_at) == (clock.now - 1, clock.now + 9, clock.now)
    assert record.spec == single().resolved()
    with pytest.raises(NotFoundError):
        pool.get_batch("bat_gone")


def test_a_batch_keeps_what_was_in_its_units(pool):
    group(pool, "g", [1.0, 0.0, 0.5])
    finished(pool, "late", reward=0.0, group_id="g2", group_size=3)
    pool.add_feedback([Feedback(kind="comparison", trajectory_id="g-2", other_id="g-1", feedback_id="f")])
    steps = [pool.list_steps(trajectory_id=name).items[0].step_id for name in ("g-0", "g-1")]
    pool.add_feedback([Feedback(kind="comparison", step_id=steps[0], other_id=steps[1], feedback_id="s")])
    kept = {}
    for spec in (
        BatchSpec(method="grpo", groups=1, rollouts=2, where="reward > 0.2"),
        BatchSpec(method="dpo", size=3, min_size=1),
        BatchSpec(method="sft", unit="step", size=1),
        single(),
    ):
        for unit in pool.get_batch(pool.lease(spec, "c").batch_id).units:
            kept[spec.resolved().unit, unit.key] = (unit.trajectories, unit.steps)
    assert kept == {
        ("group", "g"): (("g-0", "g-2"), ()),
        ("pair", "group:g"): (("g-0", "g-1"), ()),
        ("pair", "comparison:f"): (("g-2", "g-1"), ()),
        ("pair", "comparison:s"): ((), tuple(steps)),
        ("step", steps[0]): ((), (steps[0],)),
        ("trajectory", "g-0"): (("g-0",), ()),
    }


def test_batches_are_listed_by_consumer_and_state(pool, clock):
    for number in range(5):
        finished(pool, f"t{number}", reward=1.0)
    batches = [pool.lease(single(), name) for name in ("c", "c", "d", "c", "c")]
    pool.ack(batches[0].batch_id, batches[0].epoch)
    pool.release(batches[1].batch_id, batches[1].epoch)
    clock.now += 9
    pool.extend(batches[3].batch_id, batches[3].epoch, 100)
    clock.now += 2

    def listed(**filters):
        return [
            batches.index(next(b for b in batches if b.batch_id == r.batch_id))
            for r in pool.list_batches(**filters).items
        ]

    assert listed() == [4, 3, 2, 1, 0]
    assert listed(consumer="c") == [4, 3, 1, 0]
    states = {state: listed(state=state) for state in ("leased", "acked", "released", "expired")}
    assert states == {"leased": [3], "acked": [0], "released": [1], "expired": [4, 2]}
    assert listed(consumer="c", state="expired") == [4]
    page = pool.list_batches(limit=2)
    assert [record.units for record in page.items] == [[], []]
    assert listed(limit=3, cursor=page.next_cursor) == [2, 1, 0]
    with pytest.raises(InvalidRequestError):
        pool.list_batches(state="gone")


@pytest.mark.parametrize(
    "change",
    [
        {"order": "oldest"},
        {"seed": 2**63},
        {"max_staleness": -1},
        {"stale": "keep"},
        {"skip_equal": "reward"},
        {"pair_margin": 0.5},
        {"pair_margin": float("nan")},
        {"max_deliveries": 0},
        {"require": ("annotation.",)},
        {"require": ("label.a b",)},
    ],
)
def test_options_that_cannot_be_meant_are_refused(pool, change):
    with pytest.raises(InvalidRequestError):
        pool.lease(BatchSpec(method="reinforce", size=1, **change), "c")
