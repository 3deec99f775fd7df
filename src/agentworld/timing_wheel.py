"""Limits of time that are set with each call and hardly ever reached.

The event loop keeps its timers in a heap, where one that is set and cancelled costs about as much as a small call of a
function costs twenty times. A hashed timing wheel (Varghese and Lauck, 1987) puts alarms that are due at about the same
time into one bucket, so that setting one and taking it back are one operation on a set each. Alarms come late by at
most a twentieth of a second, or a second where they were set for longer than five, and never early.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType

FINE, COARSE = 0.05, 1.0
"""Seconds between the times at which alarms come."""
_LONG = 5.0
_EARLY = 1e-3  # the loop calls timers early by its clock's resolution


class Alarm:
    """Something to call, once. `at`: by the event loop's clock, before it is rounded."""

    __slots__ = ("_bucket", "at", "call")

    def __init__(self, bucket: set[Alarm], call: Callable[[], None], at: float) -> None:
        self._bucket = bucket
        self.call = call
        self.at = at

    def cancel(self) -> None:
        """Call nothing; again, or after the call, is no error."""
        self._bucket.discard(self)


class TimingWheel:
    """Alarms of one event loop at a time."""

    def __init__(self) -> None:
        self._buckets: dict[float, set[Alarm]] = {}  # by the time at which they are due
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def after(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Call `call` in so many seconds, or a little later."""
        step = FINE if seconds < _LONG else COARSE
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # What was set in one that ended never comes.
            self._loop, self._buckets, self._next, self._timer = loop, {}, math.inf, None
        at = loop.time() + seconds
        due = math.ceil(at / step) * step
        bucket = self._buckets.get(due)
        if bucket is None:
            bucket = self._buckets[due] = set()
            if due < self._next:
                self._wait(loop, due)
        alarm = Alarm(bucket, call, at)
        bucket.add(alarm)
        return alarm

    def _wait(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = until
        self._timer = loop.call_at(until, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time() + _EARLY
        self._timer, self._next = None, math.inf
        due = [when for when in self._buckets if when <= now]
        buckets = [self._buckets.pop(when) for when in sorted(due)]
        # Only those that are waited for may stay: nobody waits once more for one that is there.
        self._buckets = {when: bucket for when, bucket in self._buckets.items() if bucket}
        if self._buckets:
            self._wait(loop, min(self._buckets))
        for bucket in buckets:
            for alarm in list(bucket):
                if alarm in bucket:  # What was called before may have cancelled it.
                    bucket.discard(alarm)
                    try:
                        alarm.call()
                    except Exception as error:  # Those that are due with it come all the same.
                        loop.call_exception_handler({"message": "an alarm failed", "exception": error})


class Limit:
    """As `asyncio.timeout`, on a wheel: TimeoutError where the context lasts longer than `seconds`."""

    __slots__ = ("_alarm", "_cancelling", "_left", "_task", "_wheel", "expired")

    def __init__(self, wheel: TimingWheel, seconds: float) -> None:
        self._wheel = wheel
        self._left = seconds
        self._alarm: Alarm | None = None
        self.expired = False
        """Whether the time was over while the context lasted."""

    def __enter__(self) -> Limit:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._alarm = self._wheel.after(self._left, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None  # It and this would be a cycle.
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def pause(self) -> None:
        """Let the time stand still."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._left = max(self._alarm.at - asyncio.get_running_loop().time(), 0.0)
            self._alarm = None

    def resume(self) -> None:
        """Let it go on."""
        if self._alarm is None and not self.expired:
            self._alarm = self._wheel.after(self._left, self._expire)

    def _expire(self) -> None:
        self._alarm = None
        self.expired = True
        self._task.cancel()
