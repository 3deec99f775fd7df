"""Retention, pins and garbage: what goes, what stays, and that neither disturbs anybody."""

import threading

import pytest

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool.keeping import Retention
from agentworld.records import BatchSpec, Feedback, NewTrajectory, Policy
from tests.pool.samples import finished, group, ids, step

DAY = 86_400.0


def left(pool):
    return ids(pool.list_trajectories(limit=1000))


def test_age_names_what_ended_long_ago(pool, clock):
    finished(pool, "old", reward=1.0)
    pool.create_trajectory(NewTrajectory(trajectory_id="open"))
    pool.append_steps([step("open")])
    clock.now += 30 * DAY
    finished(pool, "new", reward=1.0)
    done = pool.collect(Retention(max_age=30 * DAY))
    assert (done.trajectories, done.steps, done.message_nodes) == (1, 1, 1)
    assert left(pool) == ["open", "new"]
    assert pool.tombstones() == []
    assert pool.check() == []


def test_policy_lag_names_what_is_behind_in_its_run(pool):
    for version in (0, 1, 2):
        finished(pool, f"v{version}", step_changes={"policy": Policy("m", "r", version)})
    finished(pool, "other", step_changes={"policy": Policy("m", "another", 0)})
    finished(pool, "without", step_changes={"policy": None})
    pool.set_policy(Policy("m", "r", 3))
    assert pool.collect(Retention(max_policy_lag=1)).trajectories == 2
    assert left(pool) == ["v2", "other", "without"]
    assert pool.check() == []


def test_the_oldest_go_until_the_pool_has_its_size(pool, clock):
    for number in range(5):
        finished(pool, f"t{number}", steps=2, reward=1.0)
        clock.now += 1
    done = pool.collect(Retention(max_steps=5))
    assert (done.trajectories, done.steps) == (3, 6)
    assert left(pool) == ["t3", "t4"]
    assert pool.collect(Retention(max_steps=5)).trajectories == 0
    assert pool.check() == []


def test_bytes_name_the_oldest_too(pool):
    for number in range(4):
        finished(pool, f"t{number}", reward=1.0, step_changes={"prompt_ids": [number] * 3000})
    assert pool.collect(Retention(max_bytes=10**9)).trajectories == 0
    assert 0 < pool.collect(Retention(max_bytes=20_000)).trajectories < 4
    assert left(pool)[-1] == "t3"
    assert pool.collect(Retention(max_bytes=0)).trajectories > 0
    assert left(pool) == []


def test_only_the_named_channels(pool, clock):
    finished(pool, "a", reward=1.0, channel="train")
    finished(pool, "b", reward=1.0, channel="val")
    clock.now += DAY
    assert pool.collect(Retention(max_age=1.0, channels=("val",))).trajectories == 1
    assert left(pool) == ["a"]


def test_pins_hold_until_their_owner_lets_go(pool, clock):
    finished(pool, "a", reward=1.0)
    finished(pool, "b", reward=1.0)
    assert pool.pin("dataset", "d1", ["a", "a"]) == 1
    assert pool.pin("dataset", "d1", ["a"]) == 0
    assert pool.pin("dataset", "d2", ["a"]) == 1
    assert [(pin.owner_kind, pin.owner, pin.trajectory_id) for pin in pool.pins(owner="d1")] == [("dataset", "d1", "a")]
    clock.now += DAY
    done = pool.collect(Retention(max_age=1.0))
    assert (done.trajectories, done.kept_pinned) == (1, 1)
    assert left(pool) == ["a"]
    assert pool.unpin("dataset", "d1") == 1
    assert pool.collect(Retention(max_age=1.0)).kept_pinned == 1
    assert pool.unpin("dataset", "d2") == 1
    assert pool.pins() == []
    assert pool.collect(Retention(max_age=1.0)).trajectories == 1


def test_a_pin_on_nothing_pins_nothing(pool):
    finished(pool, "a", reward=1.0)
    with pytest.raises(NotFoundError):
        pool.pin("dataset", "d1", ["a", "nowhere"])
    with pytest.raises(InvalidRequestError):
        pool.pin("dataset", "", ["a"])
    assert pool.pins() == []


@pytest.mark.parametrize(
    "spec",
    [
        BatchSpec(method="sft", size=1),
        BatchSpec(method="sft", unit="step", size=1),
        BatchSpec(method="grpo", groups=1, rollouts=2),
        BatchSpec(method="dpo", size=1),
    ],
    ids=["trajectory", "step", "group", "pair"],
)
def test_running_leases_and_what_a_consumer_waits_for_stay(pool, clock, spec):
    group(pool, "g1", [0.0, 1.0])
    group(pool, "g2", [0.0, 1.0])
    clock.now += DAY
    batch = pool.lease(spec, "policy")
    held = {entry.trajectory.trajectory_id for item in batch.items for entry in item.trajectories}
    done = pool.collect(Retention(max_age=1.0))
    assert (done.trajectories, done.kept_leased, done.kept_waiting) == (0, len(held), 4 - len(held))
    done = pool.collect(Retention(max_age=1.0), include_waiting=True)
    assert (done.trajectories, done.kept_leased) == (4 - len(held), len(held))
    assert set(left(pool)) == held
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.check() == []
    assert pool.collect(Retention(max_age=1.0), include_waiting=True).trajectories == len(held)
    assert left(pool) == []
    assert pool.check() == []


@pytest.mark.parametrize("failed", [False, True])
def test_rollouts_of_an_open_group_that_a_consumer_waits_for_stay(pool, clock, failed):
    group(pool, "before", [0.0, 1.0])
    batch = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=2), "policy")
    pool.ack(batch.batch_id, batch.epoch)
    open_group = {"group_id": "g", "group_size": 3, "group_failures": "zero"}
    finished(pool, "first", reward=1.0, **open_group)
    finished(pool, "second", status="failed" if failed else "finished", reward=None if failed else 0.5, **open_group)
    clock.now += DAY
    done = pool.collect(Retention(max_age=1.0))
    assert (done.trajectories, done.kept_waiting) == (2, 2)
    assert left(pool) == ["first", "second"]
    finished(pool, "third", reward=0.0, **open_group)
    batch = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=3), "policy")
    assert [item.key for item in batch.items] == ["g"]
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.collect(Retention(max_age=0.0)).trajectories == 3
    assert pool.check() == []


def test_an_open_group_that_no_consumer_waits_for_goes(pool, clock):
    finished(pool, "other", reward=1.0)
    batch = pool.lease(BatchSpec(method="sft", size=1), "policy")
    pool.ack(batch.batch_id, batch.epoch)
    finished(pool, "a", reward=1.0, status="failed", group_id="g", group_size=2)
    clock.now += DAY
    assert pool.collect(Retention(max_age=1.0)).trajectories == 2
    assert pool.check() == []


@pytest.mark.parametrize(
    "spec",
    [
        BatchSpec(method="sft", size=2, lease_seconds=10.0),
        BatchSpec(method="sft", unit="step", size=2, lease_seconds=10.0),
        BatchSpec(method="grpo", groups=1, rollouts=2, lease_seconds=10.0),
        BatchSpec(method="dpo", size=1, lease_seconds=10.0),
    ],
    ids=["trajectory", "step", "group", "pair"],
)
def test_a_lease_that_ran_out_still_holds_its_units(pool, clock, spec):
    """A trainer may be away for longer than its lease; what it has not acknowledged is still to come to it."""
    group(pool, "g", [0.0, 1.0])
    batch = pool.lease(spec, "policy")
    clock.now += DAY
    done = pool.collect(Retention(max_age=1.0))
    assert (done.trajectories, done.kept_leased, done.kept_waiting) == (0, 0, 2)
    again = pool.lease(spec, "policy")
    assert [item.key for item in again.items] == [item.key for item in batch.items]
    clock.now += DAY
    assert pool.collect(Retention(max_age=1.0), include_waiting=True).trajectories == 2
    assert pool.lease(spec, "policy") is None
    assert pool.check() == []


def test_two_limits_name_a_trajectory_once(pool, clock):
    for number in range(4):
        finished(pool, f"t{number}", reward=1.0)
    pool.pin("dataset", "d1", ["t0"])
    clock.now += DAY
    both = Retention(max_age=1.0, max_steps=3)
    planned = pool.collect(both, dry_run=True)
    assert (planned.trajectories, planned.steps, planned.kept_pinned) == (3, 3, 1)
    done = pool.collect(both)
    assert (done.trajectories, done.steps, done.kept_pinned) == (3, 3, 1)
    assert pool.check() == []


def test_what_is_leased_while_a_collection_looks_stays(request, clock):
    """Between the look and the removal a consumer may come."""
    for kind in ("sqlite_pool", "postgres_pool"):
        pool = request.getfixturevalue(kind)
        finished(pool, "a", reward=1.0)
        finished(pool, "b", reward=1.0)
        clock.now += DAY
        from agentworld.pool.sql import keeping

        look, batches = keeping.candidates, []

        def then_lease(*arguments, pool=pool, look=look, batches=batches):
            found = look(*arguments)
            if not batches:
                batches.append(pool.lease(BatchSpec(method="sft", size=1), "policy"))
            return found

        keeping.candidates = then_lease
        try:
            done = pool.collect(Retention(max_age=1.0), include_waiting=True)
        finally:
            keeping.candidates = look
        assert (done.trajectories, done.kept_leased) == (1, 1)
        assert left(pool) == [item.key for item in batches[0].items]
        assert pool.check() == []


def test_many_trajectories_go_in_one_transaction(request, clock):
    for kind in ("sqlite_pool", "postgres_pool"):
        pool = request.getfixturevalue(kind)
        for number in range(120):
            finished(pool, f"t{number}", reward=1.0, group_id=f"g{number // 3}", steps=1 + (number == 7) * 250)
        clock.now += DAY
        submitted = []
        submit = pool._writer.submit
        pool._writer.submit = lambda work, submit=submit, seen=submitted: seen.append(work) or submit(work)
        assert pool.collect(Retention(max_age=1.0)).steps == 370
        pool._writer.submit = submit
        assert len(submitted) < 25
        assert pool.stats().groups.get("open", 0) == 0
        assert pool.check() == []


def test_a_comparison_that_is_leased_holds_both_sides(pool, clock):
    for name in ("a", "b", "c"):
        finished(pool, name, reward=1.0)
    pool.add_feedback([Feedback(kind="comparison", trajectory_id="a", other_id="b")])
    clock.now += DAY
    assert pool.lease(BatchSpec(method="dpo", size=1), "policy") is not None
    done = pool.collect(Retention(max_age=1.0), include_waiting=True)
    assert (done.trajectories, done.kept_leased) == (1, 2)
    assert left(pool) == ["a", "b"]


def test_what_was_acknowledged_goes(pool, clock):
    finished(pool, "a", reward=1.0)
    clock.now += DAY
    batch = pool.lease(BatchSpec(method="sft", size=1), "policy")
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.collect(Retention(max_age=1.0)).trajectories == 1
    assert pool.check() == []


def test_a_dry_run_says_what_would_go_and_changes_nothing(pool, clock):
    for number in range(3):
        finished(pool, f"t{number}", reward=1.0)
    pool.pin("dataset", "d1", ["t1"])
    clock.now += DAY
    before = (left(pool), pool.stats(), pool.events())
    done = pool.collect(Retention(max_age=1.0), dry_run=True)
    assert (done.trajectories, done.steps, done.kept_pinned, done.dry_run) == (2, 2, 1, True)
    assert (left(pool), pool.stats(), pool.events()) == before
    again = pool.collect(Retention(max_steps=1), dry_run=True)
    assert (again.trajectories, again.kept_pinned) == (2, 1)


def test_what_was_collected_may_come_again(pool, clock):
    finished(pool, "a", reward=1.0)
    clock.now += DAY
    pool.collect(Retention(max_age=1.0))
    finished(pool, "a", reward=0.0)
    assert pool.get_trajectory("a").reward == 0.0
    assert pool.check() == []


def test_an_event_tells_of_a_collection(pool, clock):
    finished(pool, "a", reward=1.0)
    clock.now += DAY
    pool.collect(Retention(max_age=1.0))
    last = pool.events()[-1]
    assert (last.kind, last.data) == ("pool.collected", {"trajectories": 1, "steps": 1})
    pool.collect(Retention(max_age=1.0))
    assert pool.events()[-1] == last


def test_collecting_beside_writers_loses_nothing_of_theirs(pool, clock):
    """Rollouts share content that a collection takes away at the same time."""
    shared = {"prompt_ids": list(range(400)), "response_ids": [5] * 200, "response_logprobs": None, "tools": [{"n": 1}]}
    faults = []

    def write(name):
        try:
            for number in range(15):
                one = step(f"{name}-{number}", **shared)
                assert pool.append_steps([one])[0].outcome == "stored"
                pool.complete_trajectory(one.trajectory_id, "finished", 1.0)
                read = pool.get_step(one.step_id)
                assert (read.prompt_ids, read.tools) == (shared["prompt_ids"], shared["tools"])
                pool.delete_trajectories([one.trajectory_id])
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for _ in range(5):
        pool.collect()
    for thread in threads:
        thread.join()
    assert faults == []
    assert left(pool) == []
    assert pool.collect().token_blocks == 0
    assert pool.check() == []


@pytest.mark.parametrize(
    "retention",
    [
        Retention(max_age=-1.0),
        Retention(max_age=float("nan")),
        Retention(max_policy_lag=-1),
        Retention(max_steps=-1),
        Retention(max_bytes=2**70),
        Retention(max_age=1.0, channels=()),
        Retention(max_age="x"),
        Retention(max_age=True),
        Retention(max_steps=1.5),
        Retention(max_bytes=True),
        Retention(max_policy_lag=False),
        Retention(max_age=1.0, channels="train"),
        Retention(max_age=1.0, channels=(1,)),
    ],
)
def test_what_makes_no_sense_is_refused(pool, retention):
    with pytest.raises(InvalidRequestError):
        pool.collect(retention)
