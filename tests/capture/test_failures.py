"""Failed calls of a trajectory: taken up by their retries once each, bounded, and counted in bytes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from agentworld.capture.failures import Failures
from agentworld.capture.sessions import Sessions
from agentworld.pool import open_store
from agentworld.records import NewTrajectory, new_id


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_each_failure_is_taken_up_once_the_latest_first() -> None:
    failures = Failures()
    failures.add("a", {0: "s1"})
    failures.add("b")
    failures.add("a", {0: "s2", 1: "s3"})
    assert [failures.take("a") for _ in range(3)] == [{0: "s2", 1: "s3"}, {0: "s1"}, None]
    assert "a" in failures
    assert "c" not in failures
    assert failures.take("c") is None


def test_the_oldest_go_first_and_all_that_was_counted_is_given_back() -> None:
    failures = Failures()
    for number in range(100):
        failures.add("a", {0: f"s{number}"})
    taken = []
    while (found := failures.take("a")) is not None:
        taken.append(found[0])
    assert taken == [f"s{number}" for number in range(99, 35, -1)]
    empty = failures.bytes
    for number in range(200):
        failures.add(f"b{number}", {0: "s"})
    assert "a" not in failures
    assert "b135" not in failures
    full = failures.bytes
    for number in range(136, 200):
        assert failures.take(f"b{number}") == {0: "s"}
    assert 64 * empty == failures.bytes < full


def test_the_bytes_that_are_counted_are_those_that_are_taken(traced: None) -> None:
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    kept = [Failures() for _ in range(20)]
    for failures in kept:
        for body in range(64):
            digest = f"{body:064d}"
            for call in range(1 + body % 8):
                failures.add(digest, {choice: new_id("stp") for choice in range(call % 3)})
    taken = tracemalloc.get_traced_memory()[0] - before
    counted = sum(failures.bytes for failures in kept)
    assert 0.75 * taken < counted < 1.5 * taken


async def test_sessions_whose_calls_fail_stay_within_their_bytes() -> None:
    sessions = Sessions(open_store("memory://"), max_bytes=100_000)
    for number in range(20):
        session = sessions.fresh(f"t{number}")
        for call in range(60):
            session.failed(f"d{call}")
        assert sessions.total <= 100_000
    assert sessions.held() == ["t17", "t18", "t19"]
    assert session.take_failure("d0") == {}
    assert sessions.total == sum([(await sessions.get(name)).size for name in sessions.held()])


async def test_sessions_keep_no_free_json_of_their_trajectories() -> None:
    """A task can be of any size, and is not needed to answer."""
    pool = open_store("memory://")
    task = {"text": "x" * 100_000}
    pool.create_trajectory(NewTrajectory(trajectory_id="t", channel="val", task=task, metadata={"more": task}))
    sessions = Sessions(pool)
    for _ in range(2):
        found = (await sessions.get("t")).trajectory
        assert found is not None
        assert (found.channel, found.task, found.metadata) == ("val", None, {})
    assert pool.get_trajectory("t").task == task
