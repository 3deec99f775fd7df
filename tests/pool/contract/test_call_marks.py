"""Calls that name no trajectory are found by their marks, from any process, while their trajectory is open."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.pool.call_marks import ASKED_SECONDS
from agentworld.records import Exchange, Mark, Message, Step

A, B, C = ("a" * 32, "b" * 32, "c" * 32)


def call(pool, number, trajectory, *marks, error=None):
    steps = []
    if error is None:
        steps = [Step(step_id=f"s{number}", trajectory_id=trajectory, response_message=Message("assistant", "ok"))]
    exchange = Exchange(
        exchange_id=f"e{number}",
        trajectory_id=trajectory,
        dialect="chat",
        model="m",
        requested_model="m",
        messages=[Message("user", "hi")],
        choices=steps,
        marks=[Mark(digest, said) for digest, said in marks],
        error=error,
    )
    return pool.append_exchange(exchange)


def found(pool, *marks):
    return [(one.trajectory_id, one.said, one.latest) for one in pool.find_marks(marks)]


def test_a_call_is_found_by_its_body_and_by_its_reply(pool, clock):
    call(pool, 1, "t1", (A, "answered"), (B, "reply"))
    assert found(pool, A) == [("t1", "answered", False)]
    assert found(pool, B) == [("t1", "reply", True)]
    assert found(pool, C) == []
    assert found(pool) == []
    clock.now += 1
    call(pool, 2, "t1", (C, "reply"))
    assert found(pool, B) == [("t1", "reply", False)]
    # The first that is known counts.
    assert found(pool, "d" * 32, C, B) == [("t1", "reply", True)]


def test_equal_conversations_stand_in_their_order(pool, clock):
    for number, name in enumerate(["t2", "t1", "t3"]):
        clock.now += 1
        call(pool, number, name, (A, "reply"))
    assert found(pool, A) == [("t2", "reply", True), ("t1", "reply", True), ("t3", "reply", True)]
    clock.now += 1
    call(pool, 9, "t2", (B, "reply"))
    assert found(pool, A) == [("t2", "reply", False), ("t1", "reply", True), ("t3", "reply", True)]


def test_failed_calls_are_marked_too(pool):
    call(pool, 1, "t1", (A, "failed"), error={"code": "x", "message": "y"})
    assert found(pool, A) == [("t1", "failed", False)]
    call(pool, 2, "t1", (A, "answered"))
    assert found(pool, A) == [("t1", "answered", False)]


def test_a_call_on_its_way_is_found_before_its_trajectory_is_there(pool, clock):
    pool.mark_call("t1", A)
    assert found(pool, A) == [("t1", "asked", False)]
    call(pool, 1, "t1", (A, "answered"))
    pool.mark_call("t1", A)
    assert found(pool, A) == [("t1", "answered", False)]
    pool.mark_call("t2", B)
    clock.now += ASKED_SECONDS + 1
    pool.mark_call("t3", C)
    assert found(pool, B) == []


def test_a_call_in_a_trajectory_that_has_ended_is_not_found(pool):
    call(pool, 1, "t1", (A, "answered"))
    pool.complete_trajectory("t1", "finished")
    pool.mark_call("t1", B)
    assert (found(pool, B), pool.take_reply([B])) == ([], None)


@pytest.mark.parametrize("end", ["complete", "delete"])
def test_marks_go_with_the_end_of_their_trajectory(pool, end):
    call(pool, 1, "t1", (A, "answered"), (B, "reply"))
    call(pool, 2, "t2", (B, "reply"))
    if end == "complete":
        pool.complete_trajectory("t1", "finished")
    else:
        pool.delete_trajectories(["t1"])
    assert (found(pool, A), found(pool, B)) == ([], [("t2", "reply", True)])
    # What comes late brings none.
    if end == "complete":
        call(pool, 3, "t1", (A, "answered"))
        assert found(pool, A) == []


def test_the_same_exchange_again_is_the_same(pool):
    assert call(pool, 1, "t1", (A, "answered"))[0].outcome == "stored"
    assert call(pool, 1, "t1", (A, "answered"))[0].outcome == "duplicate"
    assert pool.list_exchanges("t1")[0].marks == []


def test_a_mark_is_a_digest(pool):
    for wrong in ("", "x" * 32, "aa"):
        with pytest.raises(InvalidRequestError):
            pool.find_marks([wrong])
        with pytest.raises(InvalidRequestError):
            pool.mark_call("t1", wrong)
        with pytest.raises(InvalidRequestError):
            call(pool, 1, "t1", (wrong, "reply"))


def test_each_continuation_takes_the_one_that_waits_longest(pool, clock):
    for number, name in enumerate(["t2", "t1", "t3"]):
        clock.now += 1
        call(pool, number, name, (A, "reply"))
    clock.now += 1
    call(pool, 9, "t2", (B, "reply"))  # This one has gone on already.
    assert [pool.take_reply([C, A]) for _ in range(3)] == ["t1", "t3", "t3"]
    assert [pool.take_reply([B, A]) for _ in range(2)] == ["t2", "t2"]
    assert (pool.take_reply([C]), pool.take_reply([])) == (None, None)
    # A reply that is said once more waits once more.
    clock.now += 1
    call(pool, 10, "t1", (A, "reply"))
    assert [pool.take_reply([A]) for _ in range(2)] == ["t1", "t1"]


def test_at_once_each_takes_another(pool):
    for number in range(8):
        call(pool, number, f"t{number}", (A, "reply"))
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: pool.take_reply([A]), range(8)))
    assert sorted(taken) == [f"t{number}" for number in range(8)]


def test_a_trajectory_that_has_gone_on_waits_no_more_while_its_last_call_is_on_its_way(pool, clock):
    call(pool, 1, "t1", (A, "reply"))
    assert pool.take_reply([A]) == "t1"  # The only one, so nothing had to be noted.
    clock.now += 1
    call(pool, 2, "t1", (B, "reply"))
    call(pool, 3, "t2", (B, "reply"))
    assert pool.take_reply([B]) == "t1"
    clock.now += 1
    call(pool, 4, "t3", (A, "reply"))
    assert pool.take_reply([A]) == "t3"


def test_how_old_a_mark_is_the_pools_clock_says(pool, clock):
    clock.now = 1_000.0  # Far from this machine's.
    call(pool, 1, "t1", (A, "failed"), error={"code": "x", "message": "y"})
    clock.now += 90
    assert [one.age for one in pool.find_marks([A])] == [90.0]
    clock.now -= 200
    assert [one.age for one in pool.find_marks([A])] == [0.0]
