"""How far work is that takes long, on the error stream: a bar where somebody looks at it, else lines or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

    from agentworld.pool.keeping.records import Progress

LINES_AFTER = 10.0


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar for each kind of work; nothing away from a terminal."""
    from agentworld.pool.keeping.records import no_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        known: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in known:
                known[stage] = bars.add_task(stage, total=total)
            bars.update(known[stage], completed=done, total=total)

        yield show


@contextmanager
def progress_lines() -> Iterator[Progress]:
    """A bar for each kind of work on a terminal, else a line for each twentieth of what takes over LINES_AFTER s."""
    if sys.stderr.isatty():
        with progress_bar() as show:
            yield show
        return
    begun = time.monotonic()
    said: dict[str, int] = {}

    def line(stage: str, done: int, total: int | None) -> None:
        part = 20 * done // total if total else 0
        if part < said.get(stage, 0):
            said[stage] = part  # The same kind of work again.
        elif part > said.get(stage, 0) and time.monotonic() - begun > LINES_AFTER:
            said[stage] = part
            print(
                f"{stage}: {done:,} of {total:,}, after {time.monotonic() - begun:,.0f} s", file=sys.stderr, flush=True
            )

    yield line
