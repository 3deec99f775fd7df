"""Leases by a consumer whose backlog is long and mostly waits: nothing is lost in it, nothing is looked at twice."""

import random

import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.pool.sql import knowledge, pulling, taking, units, walk
from agentworld.records import BatchSpec, Feedback, NewTrajectory, Policy, Reward
from tests.examples import seeds

from ..samples import finished, group, step

FEW = 8


def keys(batch):
    return [item.key for item in batch.items] if batch else None


def single(**settings):
    return BatchSpec(**{"method": "reinforce", "size": 1, "lease_seconds": 10, **settings})


@pytest.fixture(autouse=True)
def short_looks(monkeypatch):
    """As long backlogs are to a lease, so are these."""
    monkeypatch.setattr(taking, "TAKE_ROWS", FEW)
    monkeypatch.setattr(walk, "_PAGE", dict.fromkeys(walk._PAGE, 4))


@pytest.fixture
def looked_at(monkeypatch):
    """The keys of units that were judged, in order."""
    seen = []
    judge = units.judge

    def noting(reader, plan, found, now, current):
        seen.extend(unit.key for unit in found)
        return judge(reader, plan, found, now, current)

    monkeypatch.setattr(units, "judge", noting)
    return seen


def waiting(pool, count, prefix="w"):
    names = [f"{prefix}{number:02}" for number in range(count)]
    pool.append_steps([step(name) for name in names])
    for name in names:
        pool.complete_trajectory(name, "finished", None)
    return names


@pytest.mark.parametrize("order", ["fifo", "freshest", "random", "priority"])
def test_what_comes_back_is_not_forgotten_behind_others_that_wait(pool, clock, order):
    waiting(pool, 30)
    finished(pool, "old", reward=1.0)
    spec = single(order=order)
    assert keys(pool.lease(spec, "c")) == ["old"]
    finished(pool, "next", reward=1.0)
    assert keys(pool.lease(single(order=order), "c")) == ["next"]
    clock.now += 10  # The holder of both died.
    got = []
    for number in range(4):
        finished(pool, f"new{number}", reward=1.0)
        batch = pool.lease(spec, "c")
        pool.ack(batch.batch_id, batch.epoch)
        got += keys(batch)
    if order == "fifo":
        assert got == ["old", "next", "new0", "new1"]
    while (batch := pool.lease(spec, "c")) is not None:
        got += keys(batch)
    assert sorted(got) == ["new0", "new1", "new2", "new3", "next", "old"]


@pytest.mark.parametrize("why", ["rewarded", "requeued", "released"])
def test_what_becomes_fit_in_the_middle_comes_before_what_is_behind(pool, clock, why):
    names = waiting(pool, 20, "a")
    finished(pool, "middle", reward=None if why == "rewarded" else 1.0)
    names += waiting(pool, 20, "b")
    spec = single(max_deliveries=1)
    first = None if why == "rewarded" else pool.lease(spec, "c")
    finished(pool, "behind", reward=1.0)
    got = pool.lease(spec, "c")
    assert keys(got) == ["behind"]
    finished(pool, "last", reward=1.0)
    if why == "rewarded":
        pool.add_rewards([Reward(value=1.0, trajectory_id="middle")])
    else:
        pool.release(first.batch_id, first.epoch)
    if why == "requeued":
        assert pool.lease(single(max_deliveries=1, where="reward > 5"), "c") is None
        assert keys(pool.lease(spec, "c")) == ["last"]
        assert pool.requeue("c", ["middle"]) == 1
    assert keys(pool.lease(single(), "c")) == ["middle"]


@pytest.mark.parametrize("kind", ["stale", "poisoned", "equal", "deleted"])
def test_what_is_to_be_set_aside_far_behind_ends_no_lease_in_a_circle(pool, clock, kind):
    names = [f"w{number:02}" for number in range(30)]
    by_group = kind == "equal"
    for name in names:
        if by_group:
            group(pool, name, [1.0, 0.0])
        else:
            finished(pool, name, reward=1.0)
    settings = {"require": ("label.ok",), "lease_seconds": 10}
    if by_group:
        group(pool, "far", [1.0, 1.0])
        spec = BatchSpec(method="grpo", rollouts=2, skip_equal="reward", **settings)
        marked = ["far-0", "far-1"]
    else:
        finished(pool, "far", reward=1.0)
        spec = BatchSpec(method="sft", max_staleness=2 if kind == "stale" else None, max_deliveries=1, **settings)
        marked = ["far"]
    assert pool.lease(spec, "c") is None
    pool.add_feedback([Feedback(kind="label", name="ok", value=1, trajectory_id=name) for name in marked])
    if kind == "stale":
        pool.set_policy(Policy("m", "other", 9))
    if kind in ("poisoned", "deleted"):
        assert keys(pool.lease(spec, "c")) == ["far"]
        clock.now += 10
    if kind == "deleted":
        pool.delete_trajectories(["far"])
    assert [pool.lease(spec, "c") for _ in range(2)] == [None, None]
    told = [event for event in pool.events(limit=1000) if event.kind in ("batch.dropped", "unit.poisoned")]
    assert len(told) == (kind != "deleted")


def test_a_consumer_that_waits_looks_at_nothing_twice(pool, looked_at, clock):
    names = waiting(pool, 40)
    spec = single()
    assert pool.lease(spec, "c") is None
    looked_at.clear()
    assert [pool.lease(spec, "c") for _ in range(3)] == [None] * 3
    assert looked_at == []
    pool.append_steps([step("open")])
    pool.set_policy(Policy("m", "r", 3))
    assert pool.lease(spec, "c") is None
    assert looked_at == []
    pool.add_rewards([Reward(value=1.0, trajectory_id=names[7])])
    assert keys(pool.lease(spec, "c")) == [names[7]]
    assert set(looked_at) <= {names[7]}


def test_units_that_are_too_few_are_not_judged_again_at_each_look(pool, looked_at):
    for number in range(6):
        finished(pool, f"t{number}", reward=1.0)
    spec = BatchSpec(method="reinforce", size=8)
    assert pool.lease(spec, "c") is None
    looked_at.clear()
    assert [pool.lease(spec, "c") for _ in range(3)] == [None] * 3
    assert looked_at == []
    for number in range(6, 8):
        finished(pool, f"t{number}", reward=1.0)
    assert keys(pool.lease(spec, "c")) == [f"t{number}" for number in range(8)]


def test_more_units_that_are_due_than_are_remembered(pool, monkeypatch):
    monkeypatch.setattr(knowledge, "MOST_DUE", 4)
    monkeypatch.setattr(taking, "TAKE_MARKED", 4)
    names = waiting(pool, 30)
    spec = single()
    assert pool.lease(spec, "c") is None
    pool.add_rewards([Reward(value=1.0, trajectory_id=name) for name in names[10:]])
    got = []
    while (batch := pool.lease(spec, "c")) is not None:
        got += keys(batch)
    assert got == names[10:]


def test_a_condition_on_time_or_policies_is_asked_anew(pool, clock):
    pool.set_policy(Policy("m", "r", 1))
    finished(pool, "t", reward=1.0, step_changes={"policy": Policy("m", "r", 1)})
    young, behind = single(where="created_at < now - 60s"), single(where="staleness >= 2")
    assert [pool.lease(spec, "c") for spec in (young, behind)] == [None, None]
    clock.now += 100
    batch = pool.lease(young, "c")
    assert keys(batch) == ["t"]
    pool.release(batch.batch_id, batch.epoch)
    assert pool.lease(behind, "c") is None
    pool.set_policy(Policy("m", "r", 3))
    assert keys(pool.lease(behind, "c")) == ["t"]


def test_a_comparison_waits_for_its_trajectories(pool):
    finished(pool, "better", reward=None)
    pool.append_steps([step("worse")])
    pool.add_feedback([Feedback(kind="comparison", trajectory_id="better", other_id="worse", feedback_id="f")])
    spec = BatchSpec(method="dpo")
    assert [pool.lease(spec, "c") for _ in range(2)] == [None, None]
    pool.complete_trajectory("worse", "finished", None)
    assert keys(pool.lease(spec, "c")) == ["comparison:f"]


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", seeds(4))
def test_any_order_of_calls_gives_what_memory_gives(pool, clock, monkeypatch, seed):
    """Every order, with all that changes what fits; leases come often enough for all to have been pulled before."""
    monkeypatch.setattr(pulling, "PULL_ROWS", 512)
    chance = random.Random(seed)
    other = MemoryPool(clock=clock)
    specs = [
        BatchSpec(
            method="sft", order=order, seed=3, size=size, min_size=1, lease_seconds=50, max_deliveries=3, **settings
        )
        for order in ("fifo", "freshest", "priority", "random")
        for size, settings in ((1, {"where": "reward > 0"}), (2, {"require": ("label.ok",)}), (1, {"max_staleness": 1}))
    ]
    names, held = [], []
    for number in range(60):
        action = chance.choice(["add"] * 5 + ["reward", "label", "end", "end", "policy", "time"])
        if action == "add":
            name, priority, reward = f"t{number}", float(chance.randrange(3)), chance.choice([0.0, 1.0])
            names.append(name)
            policy = Policy("m", "r", number // 20)
            for store in (pool, other):
                store.create_trajectory(NewTrajectory(trajectory_id=name, priority=priority))
                store.append_steps([step(name, step_id=f"{name}-s", policy=policy)])
                store.complete_trajectory(name, "finished", reward)
        elif action == "reward" and names:
            reward = Reward(value=chance.choice([0.0, 1.0]), trajectory_id=chance.choice(names))
            for store in (pool, other):
                store.add_rewards([reward])
        elif action == "label" and names:
            target, value = chance.choice(names), chance.choice([None, 1])
            for store in (pool, other):
                label = Feedback(kind="label", name="ok", value=value, trajectory_id=target, feedback_id=f"f{number}")
                store.add_feedback([label])
        elif action == "policy":
            for store in (pool, other):
                store.set_policy(Policy("m", "r", number // 20))
        elif action == "time":
            clock.now += 50
            held.clear()
        elif action == "end" and held:
            for store, batch in zip((pool, other), held.pop(), strict=True):
                getattr(store, "ack" if number % 3 else "release")(batch.batch_id, batch.epoch)
        for spec in chance.sample(specs, 2):
            found = [store.lease(spec, "c") for store in (pool, other)]
            assert keys(found[0]) == keys(found[1]), (number, spec)
            if found[0] is not None:
                held.append(found)
            for store in (pool, other):
                assert store.lease(BatchSpec(method="sft", where="step_count > 9"), "c") is None


def test_many_leases_that_run_out_and_many_batches_to_resume_take_several_transactions(pool, clock, monkeypatch):
    monkeypatch.setattr(taking, "TAKE_SECONDS", 0.0)
    for number in range(24):
        finished(pool, f"t{number:02}", reward=1.0)
    spec = single()
    out = [pool.lease(spec, "c") for _ in range(24)]
    clock.now += 10
    again = [pool.lease(single(lease_seconds=99), "c") for _ in range(24)]
    assert [keys(batch) for batch in again] == [keys(batch) for batch in out]
    applied = [batch.batch_id for batch in out[:12]]
    settled = pool.resume("c", [*applied, "bat_gone"])
    assert settled["acknowledged"] == applied
    assert settled["released"] == [batch.batch_id for batch in again]
    assert settled["unknown"] == ["bat_gone"]
    assert pool.resume("c", applied) == {"acknowledged": applied, "released": [], "unknown": []}
    assert keys(pool.lease(BatchSpec(method="reinforce", size=24, min_size=1), "c")) == [keys(b)[0] for b in out[12:]]
    assert pool.check() == []
