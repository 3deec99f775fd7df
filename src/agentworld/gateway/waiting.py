"""Limits of time for what mostly needs no waiting, such as a body that has come, or a reply that fits into a buffer."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from agentworld.timing_wheel import Limit, TimingWheel

T = TypeVar("T")


class OverTimeError(TimeoutError):
    """What was waited for took longer than it may."""


async def within(wheel: TimingWheel, seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; OverTimeError where it takes longer than `seconds`. The time is taken once it has to wait:
    most such work never does.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as ended:
        found: T = ended.value
        return found
    if seconds is None:
        return await _rest(work, waits_for)
    try:
        with Limit(wheel, seconds) as limit:
            return await _rest(work, waits_for)
    except TimeoutError:
        if limit.expired:
            raise OverTimeError from None
        raise


async def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> T:
    rest: T = await _Rest(work, waits_for)
    return rest


class _Rest:
    """What is left of a coroutine that waits."""

    def __init__(self, work: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        work, waits_for = self._work, self._waits_for
        try:
            while True:
                # An error that were kept would know this frame, and it the error, for the garbage collector to find.
                try:
                    sent = yield waits_for
                except BaseException as error:
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(sent)
        except StopIteration as ended:
            return ended.value
