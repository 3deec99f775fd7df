"""What `agentworld import` prints: how far it has come, and what became of everything."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import typer

from agentworld.cli import output
from agentworld.cli.progress import progress_bar

if TYPE_CHECKING:
    from agentworld.ingest.report import ImportReport
    from agentworld.pool.keeping.records import Progress

COLUMNS = {
    "files": "files",
    "runs": "runs",
    "added": "new",
    "known": "known",
    "replaced": "changed",
    "deleted": "deleted",
    "refused": "refused",
    "empty": "no reply",
    "steps": "steps",
    "messages": "messages",
    "tool_calls": "tool calls",
    "tool_results": "results",
    "rewards": "rewards",
    "labels": "labels",
    "derived": "ids derived",
}
REASONS = 20
EVERY = 5.0  # seconds
_MB = 1_000_000


@contextmanager
def showing_progress() -> Iterator[Progress]:
    """A bar on a terminal; away from one, lines on the error stream."""
    if sys.stderr.isatty():
        with progress_bar() as progress:
            yield progress
    else:
        yield lines_of_progress(sys.stderr)


def lines_of_progress(to: TextIO, now: Callable[[], float] = time.monotonic) -> Progress:
    """A line every few seconds, none of what is done sooner."""
    last = now()

    def show(stage: str, done: int, total: int | None) -> None:
        nonlocal last
        if (at := now()) - last < EVERY:
            return
        last = at
        of = f" of {total / _MB:,.1f}" if total else ""
        print(f"{stage}: {done / _MB:,.1f}{of} MB", file=to, flush=True)

    return show


def tell(report: ImportReport, shown: int) -> None:
    """Print a report, with its first notes, those of something lost before the others."""
    if report.formats:
        rows = [(name, *(getattr(counts, field) or "" for field in COLUMNS)) for name, counts in report.formats.items()]
        output.table(("format", *COLUMNS.values()), rows, right=tuple(COLUMNS.values()), whole=("format",))
    if not report.total("runs"):
        typer.echo("No run was found")
    elif report.total("runs") == report.total("empty"):
        typer.echo("No run has a reply of a model")
    if report.unknown_files:
        typer.echo(f"{_counted(report.unknown_files, 'file')} that no format reads")
    if report.pool is not None:
        stored = "Stored" if report.total("added") or report.total("replaced") else "Nothing new was stored"
        typer.echo(output.plain(f"{stored} in {report.pool}, channel {report.channel}"))
    elif report.formats:
        typer.echo("Nothing was stored: this was a dry run")
    if report.note_count:
        _tell_notes(report, shown)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _tell_notes(report: ImportReport, shown: int) -> None:
    typer.echo(f"{_counted(report.note_count, 'note')}, {report.lost} of something lost")
    first = report.first_notes()[:shown]
    for note in first:
        mark = "lost" if note.lost else "note"
        hint = f". {note.hint}" if note.hint else ""
        typer.echo(output.plain(f"{mark}: {note.file}: {note.place}: {note.why}{hint}"))
    others = Counter(report.reasons)
    others.subtract(report.reason(note.why) for note in first)
    others += Counter()  # only those that are left
    if not others:
        return
    typer.echo(f"and {others.total()} more, by reason:")
    for reason, count in others.most_common(REASONS):
        typer.echo(output.plain(f"{count:>8} {reason}"))
    if len(others) > REASONS:
        left = sum(count for _, count in others.most_common()[REASONS:])
        typer.echo(f"{left:>8} of {len(others) - REASONS} other reasons")
