"""Runs of checks that are broken off, overtaken or followed; checks that fail; what they remember."""

import threading

import msgspec
import pytest

from agentworld.curation.checks import Found, check, registry
from agentworld.curation.running import follower_name, run_curation
from agentworld.curation.running.memory import MemoryChecks
from agentworld.curation.running.worker import Saved
from agentworld.errors import ConfigError, ConflictError
from agentworld.pool.memory import MemoryPool
from agentworld.records import Reward
from tests.curation.pools import check as check_pool
from tests.curation.pools import everything, found, planned, put


class Broken(Exception):
    pass


class Breaking:
    """A pool whose writes break off before or after the one of that number."""

    def __init__(self, pool, writes, *, after):
        self._pool, self._left, self._after = pool, writes, after

    def __getattr__(self, name):
        method = getattr(self._pool, name)
        if name not in ("add_signals", "save_follower"):
            return method

        def write(*args, **kwargs):
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Broken
            result = method(*args, **kwargs)
            if self._left < 0:
                raise Broken
            return result

        return write


def fill(pool):
    for number in range(4):
        put(pool, f"g{number}", "Same.", reward=1.0, group_id="g", group_size=4, task={"task_id": "t"})
    put(pool, "cut", "a", "b", step={"finish_reason": "length"}, task={"task_id": "t"})


def fill_more(pool):
    put(pool, "late", "Same.", reward=0.0, task={"task_id": "t"})
    pool.add_rewards([Reward(value=0.0, trajectory_id="g1", source="me")])


def broken_off(pool, plan, writes, after):
    """Whether the pass was broken off."""
    try:
        run_curation(Breaking(pool, writes, after=after), plan)
    except Broken:
        return True
    return False


@pytest.mark.parametrize("after", [False, True])
def test_broken_off_anywhere_it_goes_on_to_the_same_labels_without_doubling(after, monkeypatch):
    monkeypatch.setattr("agentworld.curation.running.reading.PAGE", 2)
    monkeypatch.setattr("agentworld.curation.running.worker.PAGE", 2)
    monkeypatch.setattr("agentworld.curation.running.worker.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("agentworld.curation.running.worker.SAVE_SHARE", 0.0)
    monkeypatch.setattr("agentworld.curation.running.labels.MOST", 3)
    plan = planned()

    def passes(breaks):
        pool = MemoryPool()
        fill(pool)
        counts = [breaks(pool)]
        run_curation(pool, plan)
        fill_more(pool)
        counts.append(breaks(pool))
        run_curation(pool, plan)
        given = [(one.trajectory_id, one.step_id, one.name, one.value) for one in pool.list_feedback(limit=1000).items]
        labels, problems = everything(pool), pool.check()
        pool.close()
        return labels, sorted(map(repr, given)), counts, problems

    whole = passes(lambda pool: False)
    assert whole[0]["late"][0]["check.exact_duplicate"] == "g0"
    writes = 0
    while True:
        number = writes
        broken = passes(lambda pool, number=number: broken_off(pool, plan, number, after))
        assert (broken[0], broken[1], broken[3]) == (whole[0], whole[1], [])
        if not any(broken[2]):
            break
        writes += 1
    assert writes > 8


def test_two_under_one_name_are_told(memory):
    put(memory, "a")
    plan = planned("unrewarded")
    run_curation(memory, plan)
    put(memory, "b")

    class Overtaken(Breaking):
        def __getattr__(self, name):
            if name == "save_follower":
                run_curation(self._pool, plan)
            return getattr(self._pool, name)

    with pytest.raises(ConflictError, match="another process follows"):
        run_curation(Overtaken(memory, 0, after=False), plan)
    assert found(memory, "b") == {"unrewarded": True}


def test_a_run_that_follows_labels_what_comes_until_it_is_stopped(pool):
    put(pool, "a")
    stop = threading.Event()
    plan = planned("unrewarded", "exact_duplicate")
    reports = []
    thread = threading.Thread(target=lambda: reports.append(run_curation(pool, plan, follow=True, stop=stop)))
    thread.start()
    try:
        put(pool, "b", "It is a.")
        labelled(pool, "b", {"unrewarded": True, "exact_duplicate": "a"})
        pool.add_rewards([Reward(value=1.0, trajectory_id="b")])
        labelled(pool, "b", {"exact_duplicate": "a"})
    finally:
        stop.set()
        thread.join(100)
    assert not thread.is_alive()
    [report] = reports
    assert report.labels == {"unrewarded": 2, "exact_duplicate": 1}
    assert report.removed == {"unrewarded": 1}
    # It may have been stopped before it saved where it was, so that the next one looks at the last again.
    again = check_pool(pool, "unrewarded", "exact_duplicate")
    assert (again.labels, again.removed) == ({}, {})


def labelled(pool, name, wanted):
    """Wait until a trajectory has these labels."""
    for event in pool.follow(timeout=100):
        if event.kind == "label.set" and event.trajectory_id == name and found(pool, name) == wanted:
            return
    raise AssertionError(found(pool, name))


@pytest.fixture
def extra():
    """Checks that a test registers, taken away after it."""
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def test_a_check_that_fails_stops_no_other_and_is_told(memory, extra):
    broken = {"now": True}

    @check("fragile", scope="trajectory", says="x", fails="y")
    def fragile(run, context):
        if broken["now"]:
            raise ValueError("no")
        yield Found("fine")

    @check("group_fragile", scope="group", says="x", fails="y")
    def group_fragile(members, context):
        assert all(each.steps for each in members)
        if broken["now"]:
            raise ValueError("never")
        yield from ()

    @check("pool_fragile", scope="pool", says="x", fails="y")
    class PoolFragile:
        def __init__(self, settings=None):
            pass

        load = classmethod(lambda cls, state, settings=None: cls())

        def add(self, run):
            if broken["now"]:
                raise ValueError("not this one")

        def result(self):
            return []

        def save(self):
            return b""

    for number in range(2):
        put(memory, f"g{number}", group_id="g", group_size=2)
    names = ("fragile", "group_fragile", "pool_fragile", "unrewarded")
    report = check_pool(memory, *names)
    assert report.errors == {
        "fragile": "ValueError: no",
        "group_fragile": "ValueError: never",
        "pool_fragile": "ValueError: not this one",
    }
    assert found(memory, "g0") == {"unrewarded": True, "failed": "fragile group_fragile pool_fragile"}
    broken["now"] = False
    report = run_curation(memory, planned(*names), again=True)
    assert report.errors == {}
    assert found(memory, "g0") == {"unrewarded": True, "fragile": "fine"}
    # What a check said before stands while it fails.
    broken["now"] = True
    run_curation(memory, planned(*names), again=True)
    assert found(memory, "g0")["fragile"] == "fine"


def test_a_state_that_cannot_be_read_begins_anew_and_is_told(memory):
    put(memory, "a", "Same.")
    plan = planned("exact_duplicate", "unrewarded")
    run_curation(memory, plan)
    there = memory.load_follower(follower_name(plan))
    saved = msgspec.msgpack.decode(there.state, type=Saved)
    saved.checks["exact_duplicate"] = b"damaged"
    memory.save_follower(there.name, there.position, msgspec.msgpack.encode(saved), revision=there.revision)
    put(memory, "b", "Same.")
    said = []
    run_curation(memory, plan, say=said.append)
    assert [line for line in said if "exact_duplicate remembered cannot be read" in line]
    assert found(memory, "b") == {"unrewarded": True}
    run_curation(memory, plan, again=True)
    assert found(memory, "b") == {"unrewarded": True, "exact_duplicate": "a"}


def test_a_state_that_is_too_large_is_told_and_the_labels_are_there(memory, monkeypatch):
    monkeypatch.setattr("agentworld.curation.running.memory.MAX_STATE", 8 * 2**20 + 4)
    put(memory, "a")
    with pytest.raises(ConfigError, match="lower `remembered`") as raised:
        check_pool(memory, "exact_duplicate", "unrewarded")
    assert raised.value.path == "checks.remembered"
    assert found(memory, "a") == {"unrewarded": True}


def test_what_does_not_come_again_is_remembered_as_it_was(memory, monkeypatch):
    plan = planned("exact_duplicate", "unrewarded")
    put(memory, "a")
    run_curation(memory, plan)
    loaded = []
    load = MemoryChecks._check
    monkeypatch.setattr(MemoryChecks, "_check", lambda self, name: loaded.append(name) or load(self, name))
    run_curation(memory, plan)
    assert loaded == []
    put(memory, "b", "It is a.")
    run_curation(memory, plan)
    assert loaded == ["exact_duplicate"]
    assert found(memory, "b") == {"unrewarded": True, "exact_duplicate": "a"}


def test_others_are_labelled_once_for_many_that_change_them(memory, monkeypatch):
    monkeypatch.setattr("agentworld.curation.running.reading.PAGE", 2)
    for number in range(12):
        put(memory, f"t{number}", reward=float(number % 2 == 0 or number > 8), task={"task_id": "one"})
    report = check_pool(memory, "difficulty")
    assert {found(memory, f"t{number}")["difficulty"] for number in range(12)} == {0.333333}
    # Each with what was known when its page was read, and once more at the end.
    assert 12 < report.labels["difficulty"] <= 24


def test_what_is_still_to_be_said_of_others_is_said_after_a_stop(memory, monkeypatch):
    monkeypatch.setattr("agentworld.curation.running.reading.PAGE", 2)
    for number in range(4):
        put(memory, f"t{number}", reward=float(number == 0), task={"task_id": "one"})
    stop = threading.Event()
    plan = planned("difficulty")
    stopped = run_curation(memory, plan, stop=stop, progress=lambda stage, done, total: done == 4 and stop.set())
    assert (stopped.trajectories, found(memory, "t0"), found(memory, "t3")) == (
        4,
        {"difficulty": 0.5},
        {"difficulty": 0.75},
    )
    report = run_curation(memory, plan)
    assert (report.trajectories, report.labels) == (0, {"difficulty": 2})
    assert found(memory, "t0") == {"difficulty": 0.75}
