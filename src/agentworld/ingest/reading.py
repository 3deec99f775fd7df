"""From files to runs: entries are found, their format is known, and each bundle is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentworld.ingest.detection import claims, head_of, looks_like
from agentworld.ingest.files import DiskEntry, StreamEntry
from agentworld.ingest.format import Format, Notes
from agentworld.ingest.formats import formats, get_format
from agentworld.ingest.limits import USUAL, Limits
from agentworld.ingest.run import Note, Run


def read_path(format: str, path: Path, *, limits: Limits = USUAL) -> tuple[list[Run], list[Note]]:
    """All runs of a file or folder, and the notes; `format` is a format's name, or auto. For tests and for small
    files: `agentworld import` reads the same as a stream.
    """
    notes: list[Note] = []
    entries = list(_entries(path, limits, notes.append))
    runs = [run for _, run in read_entries(format, entries, notes.append)]
    return runs, notes


def _entries(path: Path, limits: Limits, note: Notes) -> Iterator[StreamEntry]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts):
                yield DiskEntry(file, f"{path.name}/{file.relative_to(path)}", limits=limits, note=note)
    else:
        yield DiskEntry(path, limits=limits, note=note)


def read_entries(format: str, entries: Sequence[StreamEntry], note: Notes) -> Iterator[tuple[Format, Run]]:
    """The runs of entries, with the format that read each."""
    claimed: dict[str, list[StreamEntry]] = {}
    for entry in entries:
        if chosen := choose(format, entry, note):
            claimed.setdefault(chosen.name, []).append(entry)
    for name, of_format in claimed.items():
        reader = get_format(name)
        for bundle in reader.bundles(of_format):
            for run in reader.runs(bundle, note):
                yield reader, run


def choose(format: str, entry: StreamEntry, note: Notes) -> Format | None:
    """The format that reads an entry; None, with a note, where it is of none, or not of the one that is named."""
    head = head_of(entry)
    if format != "auto":
        named = get_format(format)
        if claims(head, [named]):
            return named
        others = claims(head, formats().values())
        hint = f"It looks like {others[0].name}" if others else None
        note(
            Note(
                file=entry.name,
                place="$",
                why=f"it is not of the format {format}: {looks_like(entry, head)}",
                hint=hint,
            )
        )
        return None
    claiming = claims(head, formats().values())
    if not claiming:
        hint = "Save it as UTF-8" if looks_like(entry, head) == "UTF-16 text" else f"Formats: {', '.join(formats())}"
        note(Note(file=entry.name, place="$", why=f"no format knows it: {looks_like(entry, head)}", hint=hint))
        return None
    if len(claiming) > 1:
        also = ", ".join(other.name for other in claiming[1:])
        note(Note(file=entry.name, place="$", why=f"read as {claiming[0].name}; {also} would read it too", lost=False))
    return claiming[0]
