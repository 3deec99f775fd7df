import itertools
import threading

import pytest

from agentworld.errors import InvalidRequestError, PoolError
from agentworld.pool.events import PAGE
from agentworld.records import NewTrajectory
from tests.pool.samples import finished, step


def create(pool, *names):
    for name in names:
        pool.create_trajectory(NewTrajectory(trajectory_id=name))


def test_a_follower_gets_the_past_then_ends_when_nothing_comes(pool):
    create(pool, "a", "b")
    found = list(pool.follow(timeout=0))
    assert [(event.kind, event.trajectory_id) for event in found] == [
        ("trajectory.created", "a"),
        ("trajectory.created", "b"),
    ]
    assert list(pool.follow(after=found[0].sequence, timeout=0)) == found[1:]
    assert list(pool.follow(after=found[1].sequence, timeout=0)) == []


def test_a_follower_waits_for_what_comes(pool):
    found = []
    seen = threading.Event()

    def read():
        for event in pool.follow():
            found.append(event.trajectory_id)
            seen.set()
            if event.trajectory_id == "last":
                return

    reader = threading.Thread(target=read)
    reader.start()
    for name in ("a", "b", "last"):
        seen.clear()
        create(pool, name)
        assert seen.wait(100)
    reader.join(100)
    assert found == ["a", "b", "last"]


def test_a_follower_is_woken_and_does_not_wait_for_its_next_look(pool):
    # Longer than the test may take: only a wake can end the wait.
    pool.poll_seconds = 3600.0
    woken = threading.Event()
    stop = pool.watch(woken.set)
    create(pool, "a")
    assert woken.wait(100)
    stop()
    woken.clear()
    create(pool, "b")
    assert pool.get_trajectory("b").status == "open"
    if pool.url.startswith(("memory", "sqlite")):
        assert not woken.is_set()


def test_only_the_kinds_that_are_asked_for(pool):
    finished(pool, "t", reward=1.0, steps=2)
    kinds = [event.kind for event in pool.follow(timeout=0, kinds=["step.appended", "trajectory.completed"])]
    assert kinds == ["step.appended", "step.appended", "trajectory.completed"]
    assert list(pool.follow(timeout=0, kinds=[])) == []


def test_more_events_than_one_look_takes(pool):
    count = PAGE + 3
    pool.append_steps([step("t", prompt_ids=[1], response_ids=[2], response_logprobs=None) for _ in range(count)])
    sequences = [event.sequence for event in pool.follow(timeout=0)]
    assert len(sequences) == count + 1
    assert all(before < after for before, after in itertools.pairwise(sequences))


def test_several_writers_and_followers_miss_and_repeat_nothing(pool):
    writers, each = 4, 25
    wanted = {f"{writer}-{number}" for writer in range(writers) for number in range(each)}
    found = [[], []]

    def write(writer):
        for number in range(each):
            create(pool, f"{writer}-{number}")

    def read(into):
        for event in pool.follow():
            into.append((event.sequence, event.trajectory_id))
            if len(into) == len(wanted):
                return

    threads = [threading.Thread(target=read, args=(into,)) for into in found]
    threads += [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found[0] == found[1]
    assert {name for _, name in found[0]} == wanted
    assert [sequence for sequence, _ in found[0]] == sorted({sequence for sequence, _ in found[0]})
    assert len(found[0]) == len(wanted)


def test_a_follower_of_a_pool_that_closes_is_told(pool):
    failed = []
    begun = threading.Event()

    def read():
        try:
            for _ in pool.follow():
                begun.set()
        except PoolError as error:
            failed.append(str(error))

    reader = threading.Thread(target=read)
    reader.start()
    create(pool, "a")
    assert begun.wait(100)
    pool.close()
    reader.join(100)
    assert len(failed) == 1
    assert "closed" in failed[0]


@pytest.mark.parametrize("after", [-1, 2**63])
def test_a_place_that_is_none_is_refused_at_once(pool, after):
    with pytest.raises(InvalidRequestError):
        pool.follow(after)
