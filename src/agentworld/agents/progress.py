"""Progress of a run: a bar on a terminal, a line every few seconds elsewhere, nothing where nobody wants it."""

from __future__ import annotations

import math
import sys
from time import monotonic
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from agentworld.agents.report import RolloutResult

LINE_SECONDS = 5.0


class RunProgress(Protocol):
    """Hears of every rollout."""

    def start(self, name: str, total: int, skipped: int) -> None:
        """The run begins; `skipped` of `total` rollouts are complete already."""

    def done(self, result: RolloutResult) -> None:
        """One rollout has ended."""

    def stop(self) -> None:
        """The run has ended, one way or another."""


class Silent:
    """Says nothing."""

    def start(self, name: str, total: int, skipped: int) -> None:
        """Nothing."""

    def done(self, result: RolloutResult) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


class Printed:
    """A rich bar where `stream` is a terminal, else a line at most every LINE_SECONDS and one at the end."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar: Progress | None = None
        self._bar_task: TaskID | None = None
        self._name = ""
        self._total = self._ended = self._failed = self._steps = self._rewarded = 0
        self._reward = 0.0
        self._began = self._last_line = 0.0
        self._last_note = -LINE_SECONDS

    def start(self, name: str, total: int, skipped: int) -> None:
        """Show the bar or the first line."""
        self._name, self._total, self._ended = name, total, skipped
        self._began = self._last_line = monotonic()
        if self._stream.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeElapsedColumn(),
                console=Console(file=self._stream),
            )
            self._bar_task = self._bar.add_task(name, total=total, completed=skipped, numbers="")
            self._bar.start()
        else:
            again = f", {skipped} of them complete already" if skipped else ""
            self._line(f"{name}: {total} rollouts{again}")

    def done(self, result: RolloutResult) -> None:
        """Count it and show the counts."""
        self._ended += 1
        self._failed += result.status == "failed"
        self._steps += result.steps
        if result.reward is not None and result.status != "failed":
            self._rewarded += 1
            self._reward += result.reward
        if self._bar is not None and self._bar_task is not None:
            self._bar.update(self._bar_task, completed=self._ended, numbers=self._numbers())
        elif monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = monotonic()
            self._line(self._counts())

    def note(self, text: str) -> None:
        """A line above the bar, or between the lines; the same kind of thing at most every LINE_SECONDS."""
        if monotonic() - self._last_note < LINE_SECONDS:
            return
        self._last_note = monotonic()
        if self._bar is not None:
            self._bar.console.print(f"{self._name}: {text}", markup=False, highlight=False)
        else:
            self._line(f"{self._name}: {text}")

    def stop(self) -> None:
        """Close the bar, or print the last line."""
        if self._bar is not None:
            self._bar.stop()
        else:
            self._line(self._counts())

    def _counts(self) -> str:
        return f"{self._name}: {self._ended}/{self._total} {self._numbers()}"

    def _numbers(self) -> str:
        seconds = monotonic() - self._began
        rate = self._steps / seconds if seconds > 0 else math.nan
        reward = f"reward {self._reward / self._rewarded:.3f}" if self._rewarded else "reward -"
        return f"failed {self._failed}, {reward}, {rate:.1f} steps/s"

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
