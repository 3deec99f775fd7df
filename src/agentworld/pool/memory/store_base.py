"""What every part of the in-memory store works with: one state under one lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agentworld.errors import PoolError
from agentworld.pool.base import Store
from agentworld.pool.events import Changes
from agentworld.pool.memory.state import State


class MemoryStore(Store):
    """A pool in this process's memory. `clock` gives seconds since the epoch."""

    def __init__(self, url: str = "memory://", *, clock: Callable[[], float] = time.time) -> None:
        self.url = url
        self._lock = threading.RLock()
        self._closed = False
        self._state = State(clock)
        self._changes = Changes()
        self._state.tell = self._changes.tell
        self.poll_seconds = 5.0

    def close(self) -> None:
        """See Pool."""
        with self._lock:
            self._closed = True
        self._changes.tell()

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See Pool."""
        return self._changes.watch(wake)

    def _open(self) -> threading.RLock:
        if self._closed:
            raise PoolError("the pool is closed", hint="Open it again")
        return self._lock
