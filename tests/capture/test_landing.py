"""Outcomes of other threads reach those who wait in the loop, and wake it once where they come together."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from agentworld.capture.landing import Landings


async def test_outcomes_that_come_together_wake_the_loop_once(monkeypatch):
    landings, futures = Landings(), [Future() for _ in range(5)]
    waiting = [asyncio.create_task(landings.of(future)) for future in futures]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    woken, wake = [], loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *args: (woken.append(args), wake(*args)))
    waiting[1].cancel()
    thread = threading.Thread(target=_finish, args=(futures,))
    thread.start()
    thread.join()  # The loop stands still meanwhile, so that all come together.
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert done[0] == 0
    assert isinstance(done[1], asyncio.CancelledError)
    assert done[2:4] == [2, 3]
    assert isinstance(done[4], ValueError)
    assert len(woken) == 1


def _finish(futures):
    for number, future in enumerate(futures[:-1]):
        future.set_result(number)
    futures[-1].set_exception(ValueError("no"))


async def test_what_lands_later_wakes_the_loop_again():
    landings = Landings()
    for number in range(3):
        future = Future()
        waiting = asyncio.create_task(landings.of(future))
        await asyncio.sleep(0)
        await asyncio.to_thread(future.set_result, number)
        assert await waiting == number


async def test_what_is_done_already_is_there_at_once():
    future = Future()
    future.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await Landings().of(future)


def test_an_outcome_after_the_loops_end_harms_nobody():
    landings, future = Landings(), Future()

    async def leave():
        waiting = asyncio.create_task(landings.of(future))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(leave())
    future.set_result(1)
    assert future.result() == 1
