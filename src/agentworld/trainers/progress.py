"""Progress of the trainer: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from agentworld.trainers.reference import BatchMetrics

LINE_SECONDS = 5.0


def batch_line(metrics: BatchMetrics) -> str:
    """What a batch did, in a line; how much was computed is told where sequences were merged."""
    if not metrics.updates:
        nothing = "nothing to learn: in each group all rewards are equal"
        return f"{metrics.trajectories} trajectories, no updates, {metrics.seconds:.1f} s ({nothing})"
    parts = [
        f"{metrics.trajectories} trajectories",
        f"{metrics.tokens} tokens",
        f"{metrics.updates} updates",
        f"loss {metrics.loss:.4f}",
        *([] if metrics.reward is None else [f"reward {metrics.reward:.3f}"]),
        *([f"merged: {metrics.computed_tokens} of {metrics.sequence_tokens} computed"] if metrics.merged else []),
        f"{metrics.seconds:.1f} s",
    ]
    return ", ".join(parts)


class Updates:
    """Progress of the trainer; a context manager that is also its callback."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name = name
        self._stream = stream or sys.stderr
        self._bar: Progress | None = None
        self._last_line = self._last_scored = 0.0
        if self._stream.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("updates {task.fields[figures]}"),
                TimeElapsedColumn(),
                console=Console(file=self._stream),
            )
            self._task = self._bar.add_task(name, total=None, figures="")

    def __call__(self, done: int, total: int, figures: dict[str, float]) -> None:
        """`done` of `total` updates are made."""
        said = f"loss {figures['loss']:.3f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, figures=said)
        elif done == total or time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            print(f"{self._name}: {done}/{total} updates, {said}", file=self._stream, flush=True)

    def scored(self, count: int) -> None:
        """So many steps were scored by the teacher, in all."""
        if time.monotonic() - self._last_scored < LINE_SECONDS:
            return
        self._last_scored = time.monotonic()
        said = f"{self._name}: the teacher has scored {count} steps"
        if self._bar is not None:
            self._bar.console.print(said, highlight=False)
        else:
            print(said, file=self._stream, flush=True)

    def __enter__(self) -> Updates:
        self._last_line = self._last_scored = time.monotonic()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
