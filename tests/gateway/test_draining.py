"""A pause takes no new calls, and is complete when no worker has a call in flight."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from agentworld.errors import PoolError
from agentworld.gateway import heartbeat
from agentworld.gateway.heartbeat import Heartbeat
from agentworld.gateway.state import SharedState
from agentworld.pool import open_store
from agentworld.pool.memory import MemoryPool
from agentworld.pool.results import GatewayState
from agentworld.records import Policy
from agentworld.testing import ScriptedReply, ScriptedRequest

from .clocks import HeldClock
from .fleet import fleet, silence
from .harness import Harness, running, until

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


class Holding:
    """A script that answers once it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    async def __call__(self, request: ScriptedRequest) -> str:
        self.asked += 1
        await self.go.wait()
        return "ok"


async def drained(pool: Any, seconds: float = 100.0) -> Any:
    return await asyncio.to_thread(pool.drain, seconds)


async def test_a_drain_waits_for_the_calls_of_every_worker(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    here, there, mine = open_store(url), open_store(url), open_store(url)
    first, second = Holding(), Holding()
    async with running(first, pool=here) as one, running(second, pool=there) as two:
        calls = [asyncio.create_task(one.say("a", "/t/t1")), asyncio.create_task(two.say("b", "/t/t2"))]
        await until(lambda: (first.asked, second.asked) == (1, 1))
        mine.set_paused(True)
        found = await drained(mine, 0.2)
        assert (found.drained, found.workers) == (False, 2)
        second.go.set()
        assert (await calls[1])[0] == 200
        await until(lambda: mine.drain().in_flight == 1 and mine.drain().unaware == 0)
        assert not mine.drain().drained
        # A new call is not taken meanwhile, by no worker.
        assert (await two.say("c", "/t/t3"))[1]["error"]["code"] == "paused"
        assert (await one.say("d", "/t/t3"))[1]["error"]["code"] == "paused"
        first.go.set()
        found = await drained(mine)
        assert (found.drained, found.workers, found.in_flight, found.unaware) == (True, 2, 0, 0)
        # What had been in flight is on record by then.
        assert [step.finish_reason for step in mine.list_steps(trajectory_id="t1").items] == ["stop"]
        assert (await calls[0])[0] == 200
        assert (first.asked, second.asked) == (1, 1)
        mine.set_paused(False)
        await until(lambda: not mine.gateway_state().paused)
        async with asyncio.timeout(100.0):
            while (await one.say("e", "/t/t3"))[0] != 200:
                pass
    # Workers that end say so.
    assert mine.gateway_workers() == []
    for pool in (here, there, mine):
        pool.close()


async def test_calls_in_the_queue_are_not_sent_during_a_pause() -> None:
    held = Holding()
    async with running(held, concurrency=1, pause_wait=30.0) as gateway:
        first = asyncio.create_task(gateway.say("a", "/t/t1"))
        await until(lambda: held.asked == 1)
        second = asyncio.create_task(gateway.say("b", "/t/t2"))
        await until(lambda: gateway.gateway.models.figures()[0].waiting == 1)
        gateway.pool.set_paused(True)
        await until(lambda: gateway.pool.drain().unaware == 0)
        held.go.set()
        assert (await first)[0] == 200
        assert (await drained(gateway.pool)).drained
        assert held.asked == 1
        assert not second.done()
        gateway.pool.set_paused(False)
        assert (await second)[0] == 200
        assert held.asked == 2


async def test_the_policy_is_the_one_that_speaks_when_the_engine_is_asked() -> None:
    held = Holding()
    async with fleet(held, concurrency=1, driver="vllm", tokens="none", clock=HeldClock()) as gateway:
        silence(gateway.engine)
        pool = gateway.pool
        pool.set_policy(Policy("scripted", "run", 1))
        first = asyncio.create_task(gateway.say("a", "/t/t1"))
        await until(lambda: held.asked == 1)
        second = asyncio.create_task(gateway.say("b", "/t/t2"))
        await until(lambda: gateway.figures()[0].waiting == 1)
        pool.set_policy(Policy("scripted", "run", 2))
        gateway.gateway.state._read_at = 0.0
        held.go.set()
        await asyncio.gather(first, second)
        # The second one was admitted under version 1, but sampled by version 2.
        assert [step.policy for step in gateway.steps()] == [
            Policy("scripted", "run", 1),
            Policy("scripted", "run", 2),
        ]


async def test_a_call_whose_client_left_holds_up_nobody() -> None:
    held = Holding()
    async with running(held) as gateway:
        call = asyncio.create_task(gateway.say("a", "/t/t1"))
        await until(lambda: held.asked == 1)
        gateway.pool.set_paused(True)
        assert not (await drained(gateway.pool, 0.1)).drained
        call.cancel()
        assert (await drained(gateway.pool)).drained


async def test_a_call_that_is_asked_again_with_a_lower_limit_waits_as_one_that_is_new() -> None:
    limits: list[int | None] = []

    async def script(request: ScriptedRequest) -> ScriptedReply:
        limits.append(request.body.get("max_tokens"))
        if len(limits) > 1:
            return ScriptedReply(text="ok")
        gateway.pool.set_paused(True)
        await until(lambda: gateway.pool.drain().unaware == 0)
        said = "This model's maximum context length is 400 tokens. However, you requested 64000 tokens."
        return ScriptedReply(status=400, error_body=json.dumps({"error": {"message": said}}))

    async with running(script, tokens="none", pause_wait=0.0) as gateway:
        body = {"model": "scripted", "messages": HELLO, "max_tokens": 64_000}
        call = asyncio.create_task(_message(gateway, body))
        await until(lambda: len(limits) == 1)
        assert (await drained(gateway.pool)).drained
        assert not call.done()
        gateway.pool.set_paused(False)
        assert await call == 200
        assert limits == [64_000, None]


async def _message(gateway: Harness, body: dict[str, Any]) -> int:
    async with gateway.http.post(gateway.url + "/v1/messages", json=body) as response:
        await response.read()
        return response.status


async def test_a_failed_call_leaves_nothing_in_flight() -> None:
    async with running(ScriptedReply(status=500, error_body="{}")) as gateway:
        assert (await gateway.say("a"))[0] == 502
        assert gateway.gateway.state.in_flight == 0


class SlowReads(MemoryPool):
    """A pool whose next read of the state is old by the time it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[asyncio.Event] = []
        self.loop = asyncio.get_running_loop()

    def gateway_state(self) -> GatewayState:
        found = super().gateway_state()
        if self.held:
            event = self.held.pop()
            asyncio.run_coroutine_threadsafe(event.wait(), self.loop).result(100.0)
        return found


async def test_a_read_that_began_before_the_pause_does_not_undo_it() -> None:
    """Else a worker could say that it has drained, and then send one more call."""
    pool = SlowReads()
    state = SharedState(pool, 0.0)
    old = asyncio.Event()
    pool.held.append(old)
    reading = asyncio.create_task(state.read(0.0))
    await until(lambda: not pool.held)
    pool.set_paused(True)
    beat = Heartbeat(pool, state)
    assert await asyncio.to_thread(beat.beat)
    assert pool.drain().drained
    old.set()
    await reading
    assert (await state.read()).paused
    await state.settle()


async def test_a_worker_whose_loop_is_busy_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be taken for dead, and a drain would be complete under its calls."""
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.01)
    held = Holding()
    async with running(held) as gateway:
        call = asyncio.create_task(gateway.say("a", "/t/t1"))
        await until(lambda: held.asked == 1)
        gateway.pool.set_paused(True)
        blocked_until = time.monotonic() + 100.0
        while gateway.pool.drain().unaware and time.monotonic() < blocked_until:
            time.sleep(0.01)  # noqa: ASYNC251 - this is the loop that is busy.
        found = gateway.pool.drain()
        assert (found.drained, found.unaware, found.in_flight) == (False, 0, 1)
        held.go.set()
        assert (await call)[0] == 200
        assert (await drained(gateway.pool)).drained


async def test_none_is_counted_once_another_thread_has_seen_the_pause() -> None:
    pool = MemoryPool()
    state = SharedState(pool, 0.0)
    admitted = await state.admit()
    assert not admitted.paused
    pool.set_paused(True)
    await asyncio.to_thread(state.look)
    assert not state.count()
    assert state.in_flight == 0


async def test_a_worker_says_only_what_is_new() -> None:
    class Counting(MemoryPool):
        said: list[tuple[int, int]] = []  # noqa: RUF012 - one pool a test

        def report_worker(self, worker: str, in_flight: int, pauses: int) -> None:
            self.said.append((in_flight, pauses))
            super().report_worker(worker, in_flight, pauses)

    pool = Counting()
    state = SharedState(pool, 0.0)
    beat = Heartbeat(pool, state)
    flight = state.flight()
    assert not await asyncio.to_thread(beat.beat)
    await flight.enter("m")
    assert not await asyncio.to_thread(beat.beat)  # Nobody waits, so this can wait too.
    assert pool.said == [(0, 0)]
    pool.set_paused(True)
    assert await asyncio.to_thread(beat.beat)
    assert await asyncio.to_thread(beat.beat)
    flight.leave()
    flight.leave()
    assert await asyncio.to_thread(beat.beat)
    assert pool.said == [(0, 0), (1, 1), (0, 1)]
    await beat.end()
    assert pool.gateway_workers() == []


@pytest.mark.parametrize("fault", ["report", "state"])
async def test_a_pool_that_fails_for_a_while_stops_no_worker(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.01)

    class Failing(MemoryPool):
        failing = True

        def report_worker(self, worker: str, in_flight: int, pauses: int) -> None:
            if self.failing and fault == "report":
                raise PoolError("the disk is full")
            super().report_worker(worker, in_flight, pauses)

        def gateway_state(self) -> GatewayState:
            if self.failing and fault == "state":
                raise PoolError("the file is gone")
            return super().gateway_state()

    pool = Failing()
    async with running(pool=pool) as gateway:
        assert pool.gateway_workers() == []
        pool.failing = False
        await until(lambda: len(pool.gateway_workers()) == 1)
        assert (await gateway.say("x"))[0] == 200
