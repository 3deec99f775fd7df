"""A trajectory with a call on its way is not idle, whichever worker serves the call."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agentworld.gateway.idle import IdleTrajectories
from agentworld.gateway.running import RunningCalls
from agentworld.pool.memory import MemoryPool

from .harness import Harness, running, until
from .test_draining import Holding

IDLE = 3600.0


async def closed(gateway: Harness, later: float, *, own: bool) -> list[str]:
    """What a round closes `later` seconds from now, by the gateway itself or by another worker on its pool."""

    def now() -> float:
        return time.time() + later

    worker = gateway.pool.gateway_workers()[0].worker
    calls: Any = gateway.gateway.running_calls if own else RunningCalls(gateway.pool, IDLE, now)
    return await asyncio.to_thread(IdleTrajectories(gateway.pool, IDLE, worker, now, calls).round)


@pytest.mark.parametrize("own", [True, False])
async def test_it_is_closed_after_its_call_alone(own: bool) -> None:
    held = Holding()
    async with running(held, pool="memory://", serve={"idle_seconds": IDLE}) as gateway:
        held.go.set()
        assert (await gateway.say("a", "/t/t1"))[0] == 200
        held.go.clear()
        # The next call comes after a long silence.
        gateway.gateway.sessions._sessions["t1"]._last_at -= IDLE
        calling = asyncio.create_task(gateway.say("b", "/t/t1"))
        await until(lambda: held.asked == 2)
        # Shortly after its coming the silence before it has been long enough.
        for step in gateway.pool._state.steps.values():  # type: ignore[attr-defined]
            step.step.created_at -= IDLE
        for _, exchange in gateway.pool._state.exchanges.values():  # type: ignore[attr-defined]
            exchange.created_at -= IDLE
        gateway.pool._state.trajectories["t1"].created_at -= 2 * IDLE  # type: ignore[attr-defined]
        assert await closed(gateway, 10.0, own=own) == []
        held.go.set()
        assert (await calling)[0] == 200
        assert [step.late for step in gateway.steps("t1")] == [False, False]
        assert await closed(gateway, 3 * IDLE, own=False) == ["t1"]


async def test_usual_calls_write_no_mark() -> None:
    async with running(serve={"idle_seconds": IDLE}) as gateway:
        for text in ("a", "b"):
            assert (await gateway.say(text, "/t/t1"))[0] == 200
        assert gateway.pool._state.marks == {}  # type: ignore[attr-defined]


async def test_what_takes_long_is_marked_again() -> None:
    pool = MemoryPool()
    here, there = RunningCalls(pool, 0.04), RunningCalls(pool, 0.04)
    going_on = asyncio.create_task(here.run())

    async def call() -> None:
        await until(lambda: there.known("t1"))

    await here.during("t1", time.time(), call())
    assert not here._running
    await until(lambda: not there.known("t1"))
    going_on.cancel()
    await asyncio.gather(going_on, return_exceptions=True)


async def test_where_nothing_is_closed_ever_nothing_is_marked() -> None:
    pool = MemoryPool()
    calls = RunningCalls(pool, 0.0)
    await calls.run()

    async def call() -> None:
        assert list(calls._running) == ["t1"]
        assert pool._state.marks == {}

    await calls.during("t1", 0.0, call())
    assert not calls._running
