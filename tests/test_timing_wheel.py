"""Alarms on a timing wheel: never early, never lost, cancelled for good."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from agentworld.timing_wheel import COARSE, FINE, Limit, TimingWheel


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is told: it goes on to the next timer as soon as there is nothing else to do."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1_000.01
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        timers = [timer for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if not self._ready and timers:  # type: ignore[attr-defined]
            self._now = max(self._now, min(timer.when() for timer in timers))
        super()._run_once()  # type: ignore[misc]


def run(work: Any) -> Any:
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(work)


@pytest.mark.parametrize("seconds", [0.0, 0.001, FINE, 0.3, 4.99, 5.0, 61.5, 3_600.0])
def test_an_alarm_comes_in_time_and_never_early(seconds: float) -> None:
    async def main() -> float:
        loop, wheel = asyncio.get_running_loop(), TimingWheel()
        begun, rung = loop.time(), loop.create_future()
        wheel.after(seconds, lambda: rung.set_result(loop.time() - begun))
        return float(await rung)

    took = run(main())
    assert seconds <= took + 1e-9
    assert took <= seconds + (FINE if seconds < 5 else COARSE) + 1e-9


def test_alarms_come_in_the_order_of_their_times_and_cancelled_ones_never() -> None:
    async def main() -> list[str]:
        wheel, heard = TimingWheel(), []
        for name, seconds in (("c", 7.0), ("a", 0.1), ("d", 90.0), ("b", 1.0)):
            wheel.after(seconds, lambda name=name: heard.append(name))  # type: ignore[misc]
        gone = [wheel.after(seconds, lambda: heard.append("gone")) for seconds in (0.05, 0.5, 7.0, 200.0)]
        for alarm in gone:
            alarm.cancel()
            alarm.cancel()
        await asyncio.sleep(0.2)
        wheel.after(0.2, lambda: heard.append("between"))
        await asyncio.sleep(300)
        assert not wheel._buckets
        return heard

    assert run(main()) == ["a", "between", "b", "c", "d"]


def test_an_alarm_may_cancel_another_of_its_time_and_set_new_ones() -> None:
    async def main() -> list[int]:
        wheel, heard = TimingWheel(), []
        alarms: list[Any] = []

        def first(number: int) -> None:
            heard.append(number)
            for alarm in alarms:
                alarm.cancel()
            if len(heard) < 3:
                wheel.after(0.0, lambda: first(number + 10))

        alarms += [wheel.after(0.02, lambda number=number: first(number)) for number in range(4)]  # type: ignore[misc]
        await asyncio.sleep(1)
        return heard

    heard = run(main())
    assert len(heard) == 3
    assert heard[1:] == [heard[0] + 10, heard[0] + 20]


def test_an_alarm_is_not_late_where_one_of_its_time_was_cancelled_before_another_rang() -> None:
    async def main() -> float:
        loop, wheel = asyncio.get_running_loop(), TimingWheel()
        wheel.after(0.95, lambda: None).cancel()
        wheel.after(0.5, lambda: None)
        wheel.after(60.0, lambda: None)
        await asyncio.sleep(0.7)
        rung = loop.create_future()
        begun = loop.time()
        wheel.after(0.25, lambda: rung.set_result(loop.time() - begun))
        return float(await rung)

    assert 0.25 <= run(main()) + 1e-9 <= 0.25 + FINE + 2e-9


def test_an_alarm_that_fails_takes_no_other_with_it() -> None:
    async def main() -> tuple[int, list[Any]]:
        loop, wheel, failed = asyncio.get_running_loop(), TimingWheel(), []
        loop.set_exception_handler(lambda _, said: failed.append(said["exception"]))
        heard = 0

        def ring() -> None:
            nonlocal heard
            heard += 1
            raise ValueError("as it may be")

        for _ in range(3):
            wheel.after(0.2, ring)
        await asyncio.sleep(1)
        return heard, failed

    heard, failed = run(main())
    assert heard == 3
    assert [type(each) for each in failed] == [ValueError] * 3


def test_a_wheel_goes_on_in_a_second_loop() -> None:
    wheel = TimingWheel()

    async def leave_one() -> None:
        wheel.after(0.2, lambda: None)

    async def hear_one() -> bool:
        rung = asyncio.Event()
        wheel.after(0.2, rung.set)
        wheel.after(70.0, lambda: None)
        await asyncio.sleep(1)
        return rung.is_set()

    run(leave_one())
    assert run(hear_one())


def test_a_limit_ends_what_takes_too_long() -> None:
    async def main() -> None:
        wheel = TimingWheel()
        with pytest.raises(TimeoutError), Limit(wheel, 0.2) as limit:
            await asyncio.sleep(10)
        assert limit.expired
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        with Limit(wheel, 0.2) as limit:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        assert not limit.expired

    run(main())


def test_a_limit_leaves_no_cycle() -> None:
    class Watched(Limit):
        pass

    async def main() -> None:
        limit = Watched(TimingWheel(), 60.0)
        with limit:
            await asyncio.sleep(0)
        gone = weakref.ref(limit)
        del limit
        assert gone() is None

    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


def test_a_limit_that_stands_still_meanwhile_goes_on_with_what_is_left() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError), Limit(TimingWheel(), 1.0) as limit:
            begun = loop.time()
            await asyncio.sleep(0.5)
            limit.pause()
            limit.pause()
            await asyncio.sleep(30)
            limit.resume()
            limit.resume()
            assert not limit.expired
            await asyncio.sleep(30)
        assert 31.0 <= loop.time() - begun + 1e-6 <= 31.1

    run(main())


def test_who_is_cancelled_from_outside_is_not_told_of_a_limit() -> None:
    async def main() -> None:
        async def limited() -> None:
            with Limit(TimingWheel(), 0.2):
                await asyncio.sleep(10)

        task = asyncio.create_task(limited())
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        late = asyncio.create_task(limited())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.249, late.cancel)
        await asyncio.wait({late})
        assert late.cancelled() or isinstance(late.exception(), TimeoutError)

    run(main())
