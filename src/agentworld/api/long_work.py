"""Requests that read a whole channel or a whole version: once for all who ask the same, and few at a time.

A client or a proxy that has lost its patience asks again; what it asked for before goes on, and the second request
waits for that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

from agentworld.errors import BusyError, ConflictError, EndingError
from agentworld.pool.keeping.records import Progress

T = TypeVar("T")
MOST = 4
"""So many pieces of work at once: each holds a thread, and reads the pool."""
MOST_WAITING = 8
"""So many requests that wait for what others have asked for, each of which holds a thread too."""


class LongWork:
    """The work of one server. Broken off when the server ends, with nothing left of what was begun."""

    def __init__(self, closing: asyncio.Event, most: int = MOST, waiting: int = MOST_WAITING) -> None:
        self._closing = closing
        self._most = most
        self._room = waiting
        self._guard = threading.Lock()
        self._running: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, work: Callable[[Progress], T]) -> T:
        """What `work` returns, or raises; where the same `key` is being worked on, what that does. ConflictError where
        too much is going on already, BusyError where too many wait for that.
        """
        with self._guard:
            there = self._running.get(key)
            if there is None:
                if len(self._running) >= self._most:
                    raise ConflictError(
                        f"{self._most} versions are being made, compared or verified already",
                        hint="Send it again once one of them is done",
                    )
                future: Future[Any] = Future()
                self._running[key] = future
            elif not self._room:
                raise BusyError(
                    "many wait for versions that are being made, compared or verified",
                    hint="Send it again once that is done",
                )
            else:
                self._room -= 1
        if there is not None:
            try:
                done: T = there.result()
            finally:
                with self._guard:
                    self._room += 1
            return done
        try:
            result = work(self._look)
        except BaseException as error:
            future.set_exception(error)
            raise
        else:
            future.set_result(result)
            return result
        finally:
            with self._guard:
                del self._running[key]

    def _look(self, stage: str, done: int, total: int | None) -> None:
        if self._closing.is_set():
            raise EndingError("the server ends, so this was broken off", hint="Send it again")
