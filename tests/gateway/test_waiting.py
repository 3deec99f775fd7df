"""Limits of time that cost nothing where nothing is waited for."""

import asyncio
import gc
import weakref

import pytest

from agentworld.gateway import waiting
from agentworld.gateway.waiting import OverTimeError, within
from agentworld.timing_wheel import TimingWheel


async def test_what_waits_for_nothing_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ready() -> str:
        return "there"

    async def faulty() -> None:
        raise TimeoutError("its own")

    monkeypatch.setattr(waiting, "Limit", None)
    assert await within(TimingWheel(), 1.0, ready()) == "there"
    with pytest.raises(TimeoutError, match="its own"):
        await within(TimingWheel(), 1.0, faulty())


async def test_what_waits_goes_on_where_it_was() -> None:
    seen: list[object] = []

    async def work() -> str:
        for turn in range(3):
            await asyncio.sleep(0)
            seen.append(turn)
        seen.append(await asyncio.wait_for(asyncio.sleep(0, "slept"), 60))
        try:
            await failing
        except ValueError as error:
            seen.append(str(error))
        return "done"

    failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.001, failing.set_exception, ValueError("no"))
    assert await within(TimingWheel(), 60.0, work()) == "done"
    assert seen == [0, 1, 2, "slept", "no"]
    assert await within(TimingWheel(), None, asyncio.sleep(0, "without a limit")) == "without a limit"


async def test_what_takes_too_long_is_cut_off() -> None:
    cut: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append("cancelled")
            raise

    with pytest.raises(OverTimeError):
        await within(TimingWheel(), 0.001, endless())
    assert cut == ["cancelled"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_time_out_of_the_work_itself_is_not_the_limits() -> None:
    async def work() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as raised:
        await within(TimingWheel(), 60.0, work())
    assert not isinstance(raised.value, OverTimeError)


async def test_who_is_cancelled_cancels_the_work() -> None:
    cut: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cut.append("ended")

    waiter = asyncio.create_task(within(TimingWheel(), 60.0, endless()))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert cut == ["ended"]


async def test_what_was_cancelled_leaves_nothing_to_the_garbage_collector() -> None:
    class Held:
        pass

    seen: list[weakref.ref[Held]] = []

    async def endless() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        await asyncio.Event().wait()

    async def cancelled() -> None:
        task = asyncio.create_task(within(TimingWheel(), 60.0, endless()))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return

    gc.disable()
    try:
        await cancelled()
        await asyncio.sleep(0)
        assert seen[0]() is None
    finally:
        gc.enable()
