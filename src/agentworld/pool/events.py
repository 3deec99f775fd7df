"""Following the events: every one once, in commit order, from any point, without asking the store all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from agentworld.records import Event

PAGE = 500
TOLD_TO_ALL = frozenset(("policy.set", "gateway.paused", "gateway.resumed"))
"""Kinds of events that are told also to who asks for one channel or trajectory alone."""
TO_ALL = "*"
FIRST_PAUSE = 0.02  # seconds between two looks, right after an event; they grow while nothing happens
GROWTH = 1.5


def stored_channel(channel: str) -> str:
    """A channel as events hold it, which hold `TO_ALL` where everybody is told; a channel may have any name."""
    return TO_ALL + channel if channel.startswith(TO_ALL) else channel


class Watched(Protocol):
    """What can be followed. `poll_seconds`: the longest time between two looks, where nothing woke the follower."""

    poll_seconds: float

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See Pool."""

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """See Pool."""


class Changes:
    """Those in this process who wait for events, from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._wakes: list[Callable[[], None]] = []

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each `tell`, until the returned function is called."""
        with self._guard:
            self._wakes.append(wake)

        def stop() -> None:
            with self._guard:
                if wake in self._wakes:
                    self._wakes.remove(wake)

        return stop

    def tell(self) -> None:
        """Wake all who wait."""
        with self._guard:
            wakes = list(self._wakes)
        for wake in wakes:
            wake()


def follow(
    pool: Watched, after: int, timeout: float | None = None, wanted: frozenset[str] | None = None
) -> Iterator[Event]:
    """Events with a sequence over `after`, as they are committed; see Pool.follow."""
    woken = threading.Event()
    stop = pool.watch(woken.set)
    quiet_since = time.monotonic()
    pause = FIRST_PAUSE
    try:
        while True:
            woken.clear()  # Before the look: what is committed after it wakes anew.
            found = pool.events(after, PAGE)
            for event in found:
                after = event.sequence
                if wanted is None or event.kind in wanted:
                    yield event
                    quiet_since = time.monotonic()
            if found:
                pause = FIRST_PAUSE
                continue
            left = pool.poll_seconds
            if timeout is not None:
                left = quiet_since + timeout - time.monotonic()
                if left <= 0:
                    return
            if not woken.wait(min(pause, left)):
                pause = min(pause * GROWTH, pool.poll_seconds)
    finally:
        stop()
