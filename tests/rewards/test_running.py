"""Evaluators over a pool, on every store: what is judged, what is known already, what is left of failures."""

import shutil
import threading

import pytest

from agentworld.errors import ConfigError, ConflictError, PoolError
from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Feedback, Reward
from agentworld.rewards.running import RunSettings, follower_name, run_rewards
from agentworld.rewards.running.following import read_saved
from agentworld.rewards.running.settings import in_shard, read_shard
from tests.pool.conftest import empty_file, kept_connections, postgres_kept, postgres_url, postgres_wipe
from tests.rewards import counting_evaluators
from tests.rewards.counting_evaluators import counted
from tests.rewards.pools import add_step, counting, failures, planned, put

__all__ = ["empty_file", "kept_connections", "postgres_kept", "postgres_url", "postgres_wipe"]


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def pool(request, tmp_path, clock):
    if request.param == "memory":
        store = MemoryPool(clock=clock)
    elif request.param == "sqlite":
        store = SqlitePool(shutil.copy(request.getfixturevalue("empty_file"), tmp_path / "pool.db"), clock=clock)
    else:
        store = PostgresPool(request.getfixturevalue("postgres_kept"), clock=clock)
    yield store
    store.close()


@pytest.fixture
def memory(clock):
    store = MemoryPool(clock=clock)
    yield store
    store.close()


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def number(log, **fields):
    return counting("number", log, **fields)


def test_what_ended_is_judged_and_what_is_known_is_not_judged_again(pool, log, clock):
    for n in range(3):
        put(pool, f"t{n}", f"it is {n}")
    put(pool, "copy", "it is 1")
    put(pool, "open", "it is 5", end=None)
    put(pool, "failed", "it is 6", end="failed")
    plan = planned(number(log))
    report = run_rewards(pool, plan, RunSettings(concurrency=2))
    tally = report.evaluators["number"]
    assert (tally.evaluated, tally.cached, tally.failed, report.trajectories) == (3, 1, 0, 4)
    assert len(counted(log)) == 3
    assert {one.trajectory_id: one.rewards for one in pool.list_trajectories().items} == {
        "t0": {"number": 0.0},
        "t1": {"number": 1.0},
        "t2": {"number": 2.0},
        "copy": {"number": 1.0},
        "open": {},
        "failed": {},
    }
    kept = {one.target_id: one for one in pool.list_evaluations(evaluator="number").items}
    assert set(kept) == {"t0", "t1", "t2", "copy"}
    assert (kept["t2"].state, kept["t2"].values, kept["t2"].details) == ("ok", {"number": 2.0}, {"said": "it is 2"})
    assert kept["copy"].fingerprint == kept["t1"].fingerprint

    # The same run has nothing left; one of another name finds all of it known.
    assert run_rewards(pool, plan, RunSettings()).trajectories == 0
    other = run_rewards(pool, plan, RunSettings(name="other")).evaluators["number"]
    assert (other.evaluated, other.cached, other.mean) == (0, 4, 1.0)
    assert len(counted(log)) == 3

    # What comes later is found by its events.
    pool.complete_trajectory("open", "truncated")
    put(pool, "late", "it is 9")
    report = run_rewards(pool, plan, RunSettings())
    assert (report.trajectories, report.evaluators["number"].evaluated) == (2, 2)
    assert pool.get_trajectory("open").rewards == {"number": 5.0}

    clock.now += 10
    assert run_rewards(pool, plan, RunSettings(again="all")).evaluators["number"].evaluated == 5
    assert len(counted(log)) == 10
    assert run_rewards(pool, plan, RunSettings(again="all")).evaluators["number"].evaluated == 0


def test_a_failure_leaves_no_reward_and_is_seen_until_it_succeeds(pool, log, clock):
    put(pool, "good", "it is 1")
    put(pool, "bad", "nothing to see")
    plan = planned(number(log))
    report = run_rewards(pool, plan, RunSettings())
    assert (report.evaluators["number"].failed, report.failed) == (1, 1)
    bad = pool.get_trajectory("bad")
    assert (bad.rewards, bad.readiness, bad.labels["evaluation.number"]) == ({}, "complete", "failed")
    assert pool.get_trajectory("good").labels == {}
    standing = pool.explain_standing(trajectory_id="bad")
    assert "could not convert string to float: 'see'" in standing.failures["number"]
    assert [one.trajectory_id for one in pool.list_trajectories(where="label.evaluation.number == 'failed'").items] == [
        "bad"
    ]

    # It is not tried again by itself, only on request.
    calls = len(counted(log))
    run_rewards(pool, plan, RunSettings())
    assert len(counted(log)) == calls
    repaired = planned(number(log, version="2"))
    report = run_rewards(pool, repaired, RunSettings(again="failed"))
    assert (report.trajectories, report.evaluators["number"].failed) == (1, 1)
    add_step(pool, "bad", "late: it is 4")  # excluded as late, and no part of what is judged
    assert run_rewards(pool, repaired, RunSettings(again="failed")).evaluators["number"].failed == 1


def test_a_label_goes_when_it_succeeds(pool, log):
    put(pool, "t", "it is 1")
    plan = planned(counting("flaky", log, reward="reward"))
    counting_evaluators.down.set()
    try:
        assert run_rewards(pool, plan, RunSettings()).failed == 1
        assert pool.get_trajectory("t").labels == {"evaluation.flaky": "failed"}
        assert run_rewards(pool, plan, RunSettings(again="failed")).failed == 1
    finally:
        counting_evaluators.down.clear()
    assert run_rewards(pool, plan, RunSettings(again="failed")).failed == 0
    ended = pool.get_trajectory("t")
    assert (ended.labels, ended.readiness, ended.reward) == ({}, "ready", 1.0)
    assert pool.explain_standing(trajectory_id="t").failures == {}
    assert run_rewards(pool, plan, RunSettings(again="failed")).trajectories == 0


def test_groups_are_judged_when_they_close_from_fresh_values(pool, log):
    tables = [
        {"kind": "numeric", "answer": "last_number", "reward": "correct"},
        {"kind": "sum", "weights": {"correct": 2.0}, "reward": "twice"},
        {"kind": "normalise", "value": "twice", "by": "mean"},
    ]
    for n in range(4):
        put(pool, f"t{n}", f"it is {n}", group_id="g", group_size=4, rollout_index=n, task={"reference": "3"})
    for n in range(2):
        put(pool, f"u{n}", "it is 3", group_id="h", group_size=4, rollout_index=n, task={"reference": "3"})
    # An older value of the same name is not taken for one of this run.
    pool.add_signals([Reward(trajectory_id="t0", name="twice", value=99.0, source="numeric")])
    plan = planned(*tables)
    report = run_rewards(pool, plan, RunSettings())
    assert (report.trajectories, report.groups) == (6, 1)
    assert [pool.get_trajectory(f"t{n}").reward for n in range(4)] == [-0.5, -0.5, -0.5, 1.5]
    assert report.evaluators["normalise"].evaluated == 1
    assert pool.get_trajectory("u0").rewards == {"correct": 1.0, "twice": 2.0}
    for n in range(2, 4):
        put(pool, f"u{n}", "it is 0", group_id="h", group_size=4, rollout_index=n, task={"reference": "3"})
    report = run_rewards(pool, plan, RunSettings())
    assert (report.trajectories, report.groups) == (2, 1)
    assert [pool.get_trajectory(f"u{n}").reward for n in range(4)] == [1.0, 1.0, -1.0, -1.0]
    kept = pool.list_evaluations(evaluator="normalise", target="group", target_id="h").items
    assert set(kept[0].details["members"]) == {"u0", "u1", "u2", "u3"}


def test_a_group_judged_in_part_is_a_failure_on_each_member(pool, log):
    for n in range(2):
        put(pool, f"t{n}", f"it is {n}", group_id="g", group_size=2, rollout_index=n)
    report = run_rewards(pool, planned(counting("half", log)), RunSettings())
    assert report.evaluators["half"].failed == 1
    assert set(failures(pool)) == {("half", "group", "g"), ("half", "trajectory", "t0"), ("half", "trajectory", "t1")}
    assert "judged 1 of 2 members; t1 missing" in pool.explain_standing(trajectory_id="t0").failures["half"]
    assert pool.get_trajectory("t0").rewards == {}
    assert pool.get_trajectory("t1").labels == {"evaluation.half": "failed"}


def test_steps_are_judged(pool, log):
    put(pool, "t", "a", "b")
    plan = planned(counting("progress", log, reward="progress"))
    assert run_rewards(pool, plan, RunSettings()).evaluators["progress"].mean == 0.5
    assert [step.rewards for step in pool.list_steps(trajectory_id="t").items] == [{"progress": 0.0}, {"progress": 1.0}]
    assert run_rewards(pool, plan, RunSettings(name="again")).evaluators["progress"].cached == 1
    assert counted(log) == ["t"]


def test_a_failed_input_fails_what_is_made_of_it_and_nothing_else(memory, log):
    put(memory, "t", "it is 1")
    put(memory, "u", "it is 1", task={"reference": "1"})
    tables = [
        counting("number", log, name="a", reward="a", parameters={"fails_on": "it"}),
        {"kind": "numeric", "reward": "b", "answer": "last_number"},
        {"kind": "sum", "weights": {"b": 1.0}, "reward": "c"},
    ]
    report = run_rewards(memory, planned(*tables), RunSettings())
    judged = {name: (each.evaluated, each.failed) for name, each in report.evaluators.items()}
    assert judged == {"a": (0, 2), "numeric": (1, 1), "sum": (1, 1)}
    assert memory.get_trajectory("t").rewards == {}
    assert "has no reward 'b'" in failures(memory)["sum", "trajectory", "t"]
    assert memory.get_trajectory("u").rewards == {"b": 1.0, "c": 1.0}


def test_a_late_reward_is_taken_up_by_what_waits_for_it(pool):
    put(pool, "t", "it is 1")
    plan = planned({"kind": "clip", "value": "human", "high": 1.0, "stored": ["human"]})
    assert run_rewards(pool, plan, RunSettings()).failed == 1
    assert "has no reward 'human'" in pool.explain_standing(trajectory_id="t").failures["clip"]
    pool.add_signals([Reward(trajectory_id="t", name="human", value=3.0, source="anna")])
    assert run_rewards(pool, plan, RunSettings()).failed == 0
    ended = pool.get_trajectory("t")
    assert (ended.rewards, ended.labels) == ({"human": 3.0, "reward": 1.0}, {})
    pool.add_signals([Feedback(trajectory_id="t", kind="comment", comment="fine")])
    assert run_rewards(pool, plan, RunSettings()).trajectories == 0


def test_where_channel_only_limit_and_shards(memory, log):
    for n in range(6):
        put(memory, f"t{n}", f"it is {n}", channel="val" if n % 2 else "train", metadata={"n": n})
    tables = (
        {"kind": "length", "name": "other", "reward": "other", "free": 1, "limit": 5},
        counting("number", log),
        {"kind": "length", "reward": "unused", "free": 1, "limit": 5},
        {"kind": "sum", "weights": {"other": 1.0}, "reward": "made"},
    )

    def judged(name="number", only=(), **settings):
        report = run_rewards(memory, planned(*tables, only=only), RunSettings(**settings))
        assert set(report.evaluators) == ({"other", "sum"} if only else {"other", "number", "length", "sum"})
        assert report.evaluators[name].evaluated + report.evaluators[name].cached == report.trajectories
        return report.trajectories

    assert judged(where="metadata.n >= 4") == 2
    assert judged(channel="val") == 3
    assert judged("sum", only=["sum"], limit=2) == 2
    assert judged("sum", only=["sum"]) == 4  # it goes on where the limit ended it
    parts = [judged(shard=(n, 3)) for n in range(3)]
    assert sum(parts) == 6
    assert parts == [sum(in_shard(f"t{n}", (part, 3)) for n in range(6)) for part in range(3)]
    assert len(counted(log)) == 6
    with pytest.raises(ConfigError, match="no evaluator is called 'nothing'"):
        planned(*tables, only=["nothing"])
    for text in ("3/3", "x", "1", "-1/2"):
        with pytest.raises(ConfigError, match="is no part"):
            read_shard(text)


def test_a_dry_run_counts_and_leaves_nothing(pool, log):
    for n in range(3):
        put(pool, f"t{n}", f"it is {n}")
    plan = planned(number(log), {"kind": "length", "free": 1, "limit": 9})
    run_rewards(pool, planned({"kind": "length", "free": 1, "limit": 9}), RunSettings())
    put(pool, "copy", "it is 1")
    before = pool.stats().last_event
    report = run_rewards(pool, plan, RunSettings(dry_run=True))
    assert (report.evaluators["number"].due, report.evaluators["length"].cached) == (4, 4)
    assert pool.get_trajectory("copy").rewards == {}
    assert (counted(log), pool.stats().last_event) == ([], before)
    assert pool.load_follower(follower_name(plan, RunSettings())) is None


def test_another_process_under_the_name_is_told(memory, log, tmp_path):
    gate = tmp_path / "gate"
    put(memory, "t0", "it is 0")
    plan = planned(counting("waits_for", log, parameters={"gate": str(gate)}))
    settings = RunSettings(follow=True)
    raised = []
    first = threading.Thread(target=lambda: raised.append(_error(lambda: run_rewards(memory, plan, settings))))
    first.start()
    _until(lambda: counted(log))
    stop = threading.Event()
    second = threading.Thread(target=lambda: run_rewards(memory, plan, settings, stop=stop))
    second.start()
    _until(lambda: len(counted(log)) == 2)  # in flight in both: nobody can know of the other's yet
    gate.touch()
    put(memory, "t1", "it is 1")
    first.join(100)
    assert isinstance(raised[0], ConflictError)
    assert "another process follows as 'reward:rewards@" in raised[0].message
    _until(lambda: memory.get_trajectory("t1").reward == 1.0)
    stop.set()
    second.join(100)
    assert not second.is_alive()


def test_a_pool_that_cannot_be_written_ends_the_run_and_the_next_goes_on(memory, log, monkeypatch):
    put(memory, "t", "it is 1")
    plan = planned(number(log))
    monkeypatch.setattr("agentworld.rewards.running.writing.FIRST_PAUSE", 0.001)

    def refuse(sent):
        raise PoolError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(memory, "add_signals", refuse)
        with pytest.raises(PoolError, match="the disk is gone"):
            run_rewards(memory, plan, RunSettings())
    report = run_rewards(memory, plan, RunSettings())
    assert report.evaluators["number"].cached == 1
    assert memory.get_trajectory("t").rewards == {"number": 1.0}
    assert counted(log) == ["t"]


def test_what_the_pool_does_not_take_is_a_failure_of_its_own(memory, log, monkeypatch):
    for n in range(3):
        put(memory, f"t{n}", f"it is {n}")
    plan = planned(number(log))
    add = memory.add_signals

    def picky(sent):
        if any(isinstance(each, Reward) and each.value == 1.0 for each in sent):
            raise ConflictError("that one contradicts")
        return add(sent)

    monkeypatch.setattr(memory, "add_signals", picky)
    report = run_rewards(memory, plan, RunSettings())
    assert (report.evaluators["number"].evaluated, report.evaluators["number"].failed) == (2, 1)
    assert "does not take what number said: that one contradicts" in failures(memory)["number", "trajectory", "t1"]
    assert memory.get_trajectory("t2").rewards == {"number": 2.0}


def _error(call):
    try:
        call()
    except Exception as error:
        return error


def _until(condition, seconds=100):
    pause, ended = threading.Event(), False
    for _ in range(int(seconds / 0.02)):
        if ended := condition():
            break
        pause.wait(0.02)
    assert ended


def test_who_came_too_late_for_a_group_is_no_member_of_it(memory, log):
    for n in range(2):
        put(memory, f"t{n}", f"it is {n}", group_id="g", group_size=2, rollout_index=n, task={"reference": "1"})
    put(memory, "late", "it is 1", group_id="g", group_size=2, rollout_index=5, task={"reference": "1"})
    tables = [
        {"kind": "numeric", "answer": "last_number", "reward": "correct"},
        {"kind": "normalise", "value": "correct", "by": "mean"},
    ]
    run_rewards(memory, planned(*tables), RunSettings())
    assert [memory.get_trajectory(name).reward for name in ("t0", "t1", "late")] == [-0.5, 0.5, None]


def test_what_is_deleted_meanwhile_is_left_out(memory, log, monkeypatch):
    for n in range(3):
        put(memory, f"t{n}", f"it is {n}")
    read = memory.list_steps

    def deleting(**chosen):
        if chosen["trajectory_id"] == "t1":
            memory.delete_trajectories(["t1"])
        return read(**chosen)

    monkeypatch.setattr(memory, "list_steps", deleting)
    report = run_rewards(memory, planned(number(log)), RunSettings())
    assert (report.evaluators["number"].evaluated, report.failed) == (2, 0)
    assert memory.get_trajectory("t2").rewards == {"number": 2.0}
    assert {one.target_id for one in memory.list_evaluations().items} == {"t0", "t2"}


def test_a_run_that_is_stopped_goes_on_later(memory, log):
    for n in range(150):
        put(memory, f"t{n}", f"it is {n}")
    stop = threading.Event()
    plan = planned(counting("number", log, parameters={"slow": 0.005}))
    settings = RunSettings(concurrency=1)
    first = run_rewards(
        memory, plan, settings, stop=stop, progress=lambda stage, done, total: done >= 20 and stop.set()
    )
    assert 0 < first.trajectories < 150
    second = run_rewards(memory, plan, settings)
    assert memory.stats().rewards == 150
    assert len(counted(log)) == 150
    assert second.evaluators["number"].evaluated + first.evaluators["number"].evaluated == 150


def test_a_run_that_is_stopped_while_all_is_held_ends(memory, monkeypatch):
    monkeypatch.setattr("agentworld.rewards.running.worker.STOP_SECONDS", 0.0)
    counting_evaluators.released.clear()
    for n in range(33):
        put(memory, f"t{n}", "held")
    stop = threading.Event()
    plan = planned({"kind": f"{counting_evaluators.__name__}:stuck", "name": "stuck", "isolation": "none"})
    try:
        report = run_rewards(
            memory,
            plan,
            RunSettings(),
            stop=stop,
            progress=lambda stage, done, total: stop.set() if done == 32 else None,
        )
    finally:
        counting_evaluators.released.set()
    assert (report.trajectories, report.failed) == (32, 0)


def test_a_slow_evaluator_does_not_hide_what_others_do(memory, log, tmp_path):
    gate = tmp_path / "gate"
    put(memory, "t0", "it is 0")
    plan = planned(counting("waits_for", log, parameters={"gate": str(gate)}), number(log))
    name, stop = follower_name(plan, RunSettings()), threading.Event()
    run = threading.Thread(target=lambda: run_rewards(memory, plan, RunSettings(follow=True), stop=stop))
    run.start()
    try:
        _until(lambda: _evaluated(memory, name, "number") == 1)
        assert _evaluated(memory, name, "waits_for") == 0
        gate.touch()
        _until(lambda: _evaluated(memory, name, "waits_for") == 1)
    finally:
        gate.touch()
        stop.set()
        run.join(100)


def _evaluated(pool, follower, evaluator):
    found = pool.load_follower(follower)
    tallies = {} if found is None else read_saved(found.state).tallies
    return tallies[evaluator].evaluated if evaluator in tallies else 0
