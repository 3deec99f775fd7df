"""Time-outs that end when a test says so, however busy the machine is."""

import asyncio

import pytest


class HeldTimeOuts:
    """In place of `asyncio.timeout`: one of `seconds` ends at `run_out`, any other as it does.

    A test waits for what has to come before the end, instead of guessing how long that takes.
    """

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seconds = seconds
        self._make = asyncio.timeout
        self._held: list[asyncio.Timeout] = []
        monkeypatch.setattr(asyncio, "timeout", self._timeout)

    def _timeout(self, delay: float | None) -> asyncio.Timeout:
        limit = self._make(None if delay == self._seconds else delay)
        if delay == self._seconds:
            self._held.append(limit)
        return limit

    def run_out(self) -> None:
        """Their time is up."""
        assert self._held, f"nothing waits for {self._seconds:g} s"
        while self._held:
            self._held.pop().reschedule(asyncio.get_running_loop().time())
