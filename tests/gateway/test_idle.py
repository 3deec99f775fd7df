"""Trajectories that nobody ends are closed once they are idle."""

from __future__ import annotations

from typing import Any

import pytest

from agentworld.errors import PoolError
from agentworld.gateway import idle
from agentworld.gateway.idle import IdleTrajectories
from agentworld.pool import open_store
from agentworld.pool.memory import MemoryPool
from agentworld.records import Exchange, FunctionCall, Message, NewTrajectory, Step, ToolCall
from tests.gateway.harness import running, until

START = 1_800_000_000.0
HOUR = 3600.0
CALL = ToolCall(id="c", function=FunctionCall("f", "{}"))
SAID = Message("assistant", "done")
CALLING = Message("assistant", None, tool_calls=(CALL,))


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> MemoryPool:
    return MemoryPool(clock=clock)


def call(pool: Any, name: str, reply: Message | None = SAID, *, at: float = START, finish: str = "stop") -> None:
    number = sum(name == kept.trajectory_id for _, kept in pool._state.exchanges.values())
    step = Step(step_id=f"{name}-{number}", trajectory_id=name, response_message=reply, finish_reason=finish)
    pool.append_exchange(
        Exchange(
            exchange_id=f"exc-{name}-{number}",
            trajectory_id=name,
            dialect="chat",
            model="m",
            requested_model="m",
            messages=[Message("user", "hi")],
            created_at=at,
            latency_ms=1000.0,
            choices=[step] if reply is not None else [],
            error=None if reply is not None else {"code": "x", "message": "y"},
        )
    )


def closer(pool: Any, clock: Clock, worker: str = "w") -> IdleTrajectories:
    return IdleTrajectories(pool, HOUR, worker, clock, steady=clock)


def test_idle_ones_end_by_what_their_last_reply_awaits(pool: MemoryPool, clock: Clock) -> None:
    call(pool, "answered")
    call(pool, "calls", CALLING, finish="tool_calls")
    call(pool, "cut", finish="length")
    call(pool, "left", finish="abort")
    call(pool, "failed", None)
    pool.create_trajectory(NewTrajectory(trajectory_id="declared"))
    pool.append_steps([Step(step_id="s", trajectory_id="own", response_message=SAID, created_at=START)])
    close = closer(pool, clock)
    clock.now = START + HOUR
    assert close.round() == []  # The replies took a second.
    clock.now = START + HOUR + 2
    assert sorted(close.round()) == ["answered", "calls", "cut", "failed", "left"]
    status = {each.trajectory_id: each.status for each in pool.list_trajectories().items}
    assert status == {
        "answered": "finished",
        "calls": "abandoned",
        "cut": "finished",
        "left": "abandoned",
        "failed": "abandoned",
        "declared": "open",
        "own": "open",
    }
    assert close.round() == []


def test_one_that_is_ended_meanwhile_keeps_none_of_the_others_open(
    pool: MemoryPool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        call(pool, name)
    clock.now = START + 2 * HOUR
    complete = pool.complete_trajectory

    def raced(name: str, *rest: Any) -> Any:
        if name == "b":
            complete(name, "failed")
        return complete(name, *rest)

    monkeypatch.setattr(pool, "complete_trajectory", raced)
    assert sorted(closer(pool, clock).round()) == ["a", "c"]
    assert pool.get_trajectory("b").status == "failed"


def test_who_goes_on_stays_open(pool: MemoryPool, clock: Clock) -> None:
    call(pool, "busy", CALLING)
    clock.now = START + HOUR - 10
    call(pool, "busy", at=clock.now)
    clock.now = START + HOUR + 60
    assert closer(pool, clock).round() == []
    clock.now += HOUR
    assert closer(pool, clock).round() == ["busy"]


def test_nobody_was_silent_while_the_machine_slept_or_its_clock_was_set(pool: MemoryPool, clock: Clock) -> None:
    call(pool, "t", CALLING)
    steady = Clock()
    close = IdleTrajectories(pool, HOUR, "w", clock, steady=steady)
    for ran, jumped in ((HOUR / 2, 0.0), (60.0, 8 * HOUR), (60.0, 0.0), (60.0, -2 * HOUR), (60.0, 2 * HOUR)):
        clock.now += ran + jumped
        steady.now += ran
        assert close.round() == []
    for ran, closed in ((HOUR / 2, []), (HOUR / 2 - 1, []), (2, ["t"])):
        clock.now += ran
        steady.now += ran
        assert close.round() == closed


def test_a_last_call_that_failed_counts(pool: MemoryPool, clock: Clock) -> None:
    call(pool, "t")
    call(pool, "t", None, at=START + HOUR)
    clock.now = START + 2 * HOUR
    assert closer(pool, clock).round() == []  # It was silent since the failed call, not since the reply.
    clock.now += 2
    assert closer(pool, clock).round() == ["t"]
    # Its last call got no reply, so it did not end well.
    assert pool.get_trajectory("t").status == "abandoned"


def test_of_many_calls_the_newest_decide(pool: MemoryPool, clock: Clock) -> None:
    for number in range(1100):
        call(pool, "fails", None, at=START + number)
        call(pool, "talks", at=START + number)
    clock.now = START + 1099 + HOUR
    assert closer(pool, clock).round() == []
    clock.now += 2
    assert sorted(closer(pool, clock).round()) == ["fails", "talks"]
    assert pool.get_trajectory("fails").status == "abandoned"
    assert pool.get_trajectory("talks").status == "finished"


def test_what_comes_after_is_late_and_revives_nothing(pool: MemoryPool, clock: Clock) -> None:
    call(pool, "t")
    clock.now = START + 2 * HOUR
    assert closer(pool, clock).round() == ["t"]
    call(pool, "t", at=clock.now)
    late = pool.get_step("t-1")
    assert (late.late, late.excluded_reason) == (True, "late")
    assert pool.get_trajectory("t").status == "finished"
    clock.now += 2 * HOUR
    assert closer(pool, clock).round() == []


def test_one_worker_of_a_pool_does_it(pool: MemoryPool, clock: Clock) -> None:
    call(pool, "t")
    clock.now = START + 2 * HOUR
    for worker in ("a", "b"):
        pool.report_worker(worker, 0, 0)
    assert closer(pool, clock, "b").round() == []
    assert closer(pool, clock, "a").round() == ["t"]


def test_open_ones_that_stay_so_do_not_hide_the_rest(
    pool: MemoryPool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "_PAGE", 2)
    monkeypatch.setattr(idle, "_PER_ROUND", 1)
    for number in range(4):
        pool.create_trajectory(NewTrajectory(trajectory_id=f"own-{number}"))
    call(pool, "t")
    clock.now = START + 2 * HOUR
    close = closer(pool, clock)
    assert [close.round() for _ in range(3)] == [[], [], ["t"]]


async def test_a_gateway_closes_them_and_survives_a_pool_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "ROUND_SECONDS", 0.02)
    pool = open_store("memory://")
    rounds = iter([PoolError("the disk is full")])
    listed = pool.list_trajectories

    def failing(**options: Any) -> Any:
        for error in rounds:
            raise error
        return listed(**options)

    monkeypatch.setattr(pool, "list_trajectories", failing)
    async with running("ok", pool=pool, serve={"idle_seconds": 0.5}) as harness:
        await harness.say("hello", "/t/x")
        await until(lambda: pool.get_trajectory("x").status == "finished")
    pool.close()


async def test_nothing_is_closed_where_that_is_set_off() -> None:
    await IdleTrajectories(open_store("memory://"), 0.0, "w").run()
