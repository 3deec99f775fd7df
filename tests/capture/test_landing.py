"""Outcomes of other threads reach those who wait in the loop, and wake it once where they come together."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from agentworld.capture import landing
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
    assert done[1:4] == [1, 2, 3]
    assert waiting[1].cancelling() == 0  # It was told to end while what it had begun went on, and learns of that.
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


async def test_who_is_cancelled_waits_for_what_was_begun_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(landing, "PATIENCE", 0.01)
    waiting = asyncio.create_task(Landings().of(Future()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()


def test_an_outcome_after_the_loops_end_harms_nobody(monkeypatch):
    monkeypatch.setattr(landing, "PATIENCE", 0.01)
    landings, future = Landings(), Future()

    async def leave():
        waiting = asyncio.create_task(landings.of(future))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(leave())
    future.set_result(1)
    assert future.result() == 1
