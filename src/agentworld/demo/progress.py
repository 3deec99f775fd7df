"""Several runs that go on at one moment, shown as one."""

from __future__ import annotations

from agentworld.agents.progress import RunProgress
from agentworld.agents.report import RolloutResult


class Joined:
    """Shows several runs that go on at one moment as one."""

    def __init__(self, shown: RunProgress, name: str, runs: int) -> None:
        self._shown = shown
        self._name = name
        self._waiting = self._going = runs
        self._total = self._skipped = 0
        self._early: list[RolloutResult] = []

    def start(self, name: str, total: int, skipped: int) -> None:
        """One of the runs begins; the last to begin starts what is shown."""
        self._waiting -= 1
        self._total += total
        self._skipped += skipped
        if self._waiting == 0:
            self._shown.start(self._name, self._total, self._skipped)
            for result in self._early:
                self._shown.done(result)

    def done(self, result: RolloutResult) -> None:
        """One rollout has ended."""
        if self._waiting:
            self._early.append(result)
        else:
            self._shown.done(result)

    def stop(self) -> None:
        """One of the runs has ended; the last one ends what is shown."""
        self._going -= 1
        if self._going == 0 and self._waiting == 0:
            self._shown.stop()
