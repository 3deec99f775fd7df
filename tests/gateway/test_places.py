"""Places at engines: who waits for something else leaves its own to others; one call tries an engine that failed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from agentworld.config import ModelSettings
from agentworld.errors import EngineUnreachableError
from agentworld.gateway.queueing import Place, QueueFullError, Slots
from agentworld.gateway.upstreams import Turn, Upstreams
from agentworld.testing import ScriptedReply, ScriptedRequest

from .clocks import HeldClock
from .fleet import Fleet, fleet
from .harness import until

AWAY = ScriptedReply(status=503, error_body={"error": {"message": "starting"}})


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def tick(clock: HeldClock, done: Callable[[], bool]) -> None:
    """Let time go on until something is so."""
    async with asyncio.timeout(100.0):
        while not done():
            clock.advance(0.25)
            await asyncio.sleep(0.001)


def said(result: tuple[int, dict[str, Any], Any]) -> tuple[int, str]:
    return result[0], result[1]["choices"][0]["message"]["content"]


async def test_a_cut_reply_leaves_its_place_to_others_while_it_waits() -> None:
    clock = HeldClock()
    replies = [ScriptedReply(text="before ", finish_reason="abort"), "another", "after"]
    async with fleet(replies, tokens="token-in", concurrency=1, queue=0, clock=clock) as gateway:
        cut = asyncio.create_task(gateway.say("hello", "/t/t1"))
        await until(lambda: gateway.calls() == [1] and gateway.figures()[0].in_flight == 0)
        assert said(await gateway.say("hello", "/t/t2")) == (200, "another")
        assert not cut.done()
        await tick(clock, cut.done)
        assert said(await cut) == (200, "before after")
        assert gateway.figures()[0].in_flight == 0


async def paused_between_tries(gateway: Fleet, clock: HeldClock) -> asyncio.Task[Any]:
    """A call whose first try found the engine away, and whose second waits for the end of a pause."""
    call = asyncio.create_task(gateway.say("hello", "/t/t1"))
    await until(lambda: gateway.calls() == [1])
    await tick(clock, lambda: gateway.figures()[0].calls == 2)
    return call


async def test_a_call_that_waits_for_the_end_of_a_pause_holds_no_place() -> None:
    clock = HeldClock()
    async with fleet("?", concurrency=1, clock=clock) as gateway:
        pool, state = gateway.pool, gateway.gateway.state

        def script(request: ScriptedRequest) -> ScriptedReply:
            if request.call:
                return ScriptedReply(text="ok")
            pool.set_paused(True)
            state._read_at = 0.0
            return AWAY

        gateway.engine.script = script
        call = await paused_between_tries(gateway, clock)
        await until(lambda: gateway.figures()[0].in_flight == 0)
        assert gateway.calls() == [1]
        pool.set_paused(False)
        await tick(clock, call.done)
        assert said(await call) == (200, "ok")
        assert state.in_flight == 0


async def test_a_place_is_had_again_behind_those_that_wait_and_whatever_the_queue() -> None:
    clock = HeldClock()
    slots = Slots(1, 1, 60.0, clock)
    place, other = Place(slots, lambda: math.inf), Place(slots, lambda: math.inf)
    await place.take()
    await place.take()
    queued = asyncio.create_task(other.take())
    await settle()
    place.give_back()
    place.give_back()
    assert slots.in_use == 1
    late = Place(slots, lambda: math.inf)
    waiting = asyncio.create_task(late.take())
    again = asyncio.create_task(place.take())
    await settle()
    assert queued.done()
    assert slots.full
    assert not again.done()
    with pytest.raises(QueueFullError):
        await Place(slots, lambda: math.inf).take()
    other.give_back()
    await waiting
    late.give_back()
    await again
    place.give_back()
    assert (slots.in_use, slots.waiting) == (0, 0)


async def test_who_has_little_time_left_queues_no_longer() -> None:
    clock = HeldClock()
    slots = Slots(1, 8, 60.0, clock)
    await Place(slots, lambda: math.inf).take()
    hurried = asyncio.create_task(Place(slots, lambda: 2.0).take())
    await settle()
    clock.advance(2.0)
    with pytest.raises(QueueFullError, match="within 2 s"):
        await hurried
    assert slots.waiting == 0


async def test_one_call_tries_an_engine_after_its_rest_also_where_it_has_to_queue() -> None:
    clock = HeldClock()
    settings = ModelSettings(
        name="m", upstream="http://10.0.0.1:1", upstreams=("http://10.0.0.2:1",), driver="builtin", concurrency=1
    )
    upstreams = Upstreams(settings, 10.0, clock)
    home, other = upstreams.ranked("t")
    before, trying, second = (Turn(upstreams, "t", lambda: math.inf) for _ in range(3))
    await before.begin()
    assert before.upstream is home
    home.health.fail(EngineUnreachableError("gone"))
    clock.advance(1.0)
    trial = asyncio.create_task(trying.begin())
    await settle()
    assert not trial.done()
    await second.begin()
    assert second.upstream is other
    await second.leave(None)
    await before.leave(None)
    # The call from before the failure says nothing of the trial, which goes on.
    await trial
    assert trying.upstream is home
    home.health.fail(EngineUnreachableError("gone"))
    assert not home.health.usable
    await trying.leave(None)
    assert home.health.sound
    await upstreams.close()
