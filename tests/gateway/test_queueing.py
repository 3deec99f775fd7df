"""Places on an engine: so many at once, the others in order, neither too many nor too long."""

from __future__ import annotations

import asyncio

import pytest

from agentworld.gateway.queueing import QueueFullError, Slots

from .clocks import HeldClock


def slots(limit: int | None = 1, queue: int = 8, wait: float = 60.0) -> tuple[Slots, HeldClock]:
    clock = HeldClock()
    return Slots(limit, queue, wait, clock), clock


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_places_go_to_those_that_wait_longest() -> None:
    places, clock = slots(limit=2)
    order: list[int] = []

    async def call(number: int, done: asyncio.Event) -> None:
        since = await places.acquire()
        order.append(number)
        await done.wait()
        places.release(since)

    events = [asyncio.Event() for _ in range(6)]
    tasks = []
    for number, event in enumerate(events):
        tasks.append(asyncio.create_task(call(number, event)))
        await settle()
    assert order == [0, 1]
    assert (places.in_use, places.waiting) == (2, 4)
    for number in (1, 0, 2):
        events[number].set()
        await settle()
    assert order == [0, 1, 2, 3, 4]
    assert (places.in_use, places.waiting) == (2, 1)
    for event in events:
        event.set()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4, 5]
    assert (places.in_use, places.waiting, clock.sleeping) == (0, 0, 0)


async def test_nobody_overtakes_those_that_wait() -> None:
    places, _ = slots()
    since = await places.acquire()
    second = asyncio.create_task(places.acquire())
    await settle()
    places.release(since)  # The place is the second's now, though it has not run yet.
    assert not places.free
    third = asyncio.create_task(places.acquire())
    await settle()
    assert second.done()
    assert not third.done()
    places.release(second.result())
    await third


async def test_a_full_queue_is_refused_at_once() -> None:
    places, _ = slots(queue=1)
    await places.acquire()
    waiting = asyncio.create_task(places.acquire())
    await settle()
    assert places.full
    with pytest.raises(QueueFullError) as caught:
        await places.acquire()
    assert caught.value.status == 429
    waiting.cancel()


async def test_who_waits_too_long_is_refused_and_leaves_the_queue() -> None:
    places, clock = slots(wait=5.0)
    since = await places.acquire()
    waiting = asyncio.create_task(places.acquire())
    await settle()
    clock.advance(4.9)
    await settle()
    assert not waiting.done()
    clock.advance(0.2)
    with pytest.raises(QueueFullError, match="within 5 s"):
        await waiting
    assert places.waiting == 0
    places.release(since)
    assert places.in_use == 0


async def test_who_leaves_the_queue_takes_no_place_along() -> None:
    places, _ = slots()
    since = await places.acquire()
    first, second = asyncio.create_task(places.acquire()), asyncio.create_task(places.acquire())
    await settle()
    places.release(since)
    first.cancel()  # It has the place, and does not know yet.
    await settle()
    assert first.cancelled()
    assert second.done()
    third = asyncio.create_task(places.acquire())
    await settle()
    third.cancel()
    await settle()
    places.release(second.result())
    assert (places.in_use, places.waiting) == (0, 0)


async def test_what_is_said_of_the_wait_follows_how_long_calls_took() -> None:
    places, clock = slots(limit=2, queue=3)
    assert places.retry_after == 1
    for _ in range(2):
        since = await places.acquire()
        clock.advance(8.0)
        places.release(since)
    tasks = [asyncio.create_task(places.acquire()) for _ in range(5)]
    await settle()
    assert places.waiting == 3
    assert places.retry_after == 16  # Two go on every 8 s, so a fourth would have its turn in 16.
    clock.advance(200.0)
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_without_a_limit_all_go_at_once() -> None:
    places, _ = slots(limit=None)
    for _ in range(1000):
        await places.acquire()
    assert places.free
    assert not places.full
