"""When an evaluator that fails and fails is left alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agentworld.rewards.running.settings import RunSettings


class Rest:
    """When an evaluator that fails and fails is left alone. Each rest is twice as long as the one before."""

    def __init__(self, settings: RunSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._rests = 0
        self._until: float | None = None
        self._trying = False
        self.error: str | None = None

    def admits(self) -> bool:
        """Whether one more may be tried; after a rest it is one alone, until that has ended."""
        with self._lock:
            if self._until is None:
                return True
            if self._trying or self._clock() < self._until:
                return False
            self._trying = True
            return True

    def succeeded(self) -> bool:
        """It judged; True where that ends a rest."""
        with self._lock:
            rested = self._until is not None
            self._failures = self._rests = 0
            self._until, self._trying, self.error = None, False, None
            return rested

    def failed(self, error: str) -> bool:
        """It failed; True where it rests from now on, and did not before."""
        with self._lock:
            self._failures += 1
            if self._until is None and self._failures < self._settings.pause_after:
                return False
            fresh = self._until is None
            seconds = min(self._settings.first_rest * 2**self._rests, self._settings.longest_rest)
            self._rests = min(self._rests + 1, 30)
            self._until, self._trying, self.error = self._clock() + seconds, False, error
            return fresh

    def wake(self) -> None:
        """Begin anew: what was skipped is tried once more."""
        with self._lock:
            self._failures, self._until, self._trying = 0, None, False

    @property
    def resting(self) -> bool:
        """Whether nothing is tried now."""
        with self._lock:
            return self._until is not None
