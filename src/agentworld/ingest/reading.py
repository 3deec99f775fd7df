"""From files to runs: entries are found, their format is known, and each bundle is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agentworld.ingest.detection import claims, head_of, looks_like
from agentworld.ingest.files import StreamEntry
from agentworld.ingest.finding import entries
from agentworld.ingest.format import Format, Notes, each_alone
from agentworld.ingest.formats import formats, get_format
from agentworld.ingest.limits import USUAL, Limits
from agentworld.ingest.run import Note, Run

Seen = Callable[[StreamEntry, Format | None], None]


class Read(NamedTuple):
    """One run, with the format that read it, the entries that it was read from, and its number among theirs from 0."""

    format: Format
    bundle: Sequence[StreamEntry]
    number: int
    run: Run


def read_path(format: str, path: Path, *, limits: Limits = USUAL) -> tuple[list[Run], list[Note]]:
    """All runs of a file or folder, and the notes; `format` is a format's name, or auto. For tests and for small
    files: `agentworld import` reads the same as a stream.
    """
    notes: list[Note] = []
    found = read_entries(format, entries([path], notes.append, limits), notes.append)
    return [read.run for read in found], notes


def read_entries(
    format: str, found: Iterable[StreamEntry], note: Notes, seen: Seen = lambda entry, format: None
) -> Iterator[Read]:
    """The runs of entries. Formats whose entries stand alone are read as these come, the others once all are known.

    `seen` is told of each entry, with its format, or None where none reads it.
    """
    waiting: dict[str, list[StreamEntry]] = {}
    told: set[str] = set()
    for entry in found:
        chosen = choose(format, entry, told)
        seen(entry, chosen)
        if chosen is None:
            continue
        if stands_alone(chosen):
            yield from _read(chosen, [entry], note)
        else:
            if (look := getattr(chosen, "look", None)) is not None:
                look(entry)
            entry.forget()
            waiting.setdefault(chosen.name, []).append(entry)
    for name, of_format in waiting.items():
        reader = get_format(name)
        try:
            for bundle in reader.bundles(of_format):
                yield from _read(reader, [entry for entry in bundle if isinstance(entry, StreamEntry)], note)
        except Exception as error:
            note(_stumbled(reader, of_format, error))


def stands_alone(format: Format) -> bool:
    """Whether each entry of a format is read for itself: it has `joins = False`, or each_alone as its bundles."""
    return getattr(format, "joins", None) is False or getattr(format.bundles, "__func__", format.bundles) is each_alone


def _read(format: Format, bundle: list[StreamEntry], note: Notes) -> Iterator[Read]:
    number = 0
    try:
        for run in format.runs(bundle, note):
            yield Read(format, bundle, number, run)
            number += 1
        if number == 0 and bundle:
            bundle[0].say("$", f"there is no run of {format.name} in it", lost=False)
    except Exception as error:
        note(_stumbled(format, bundle, error))


def _stumbled(format: Format, bundle: Sequence[StreamEntry], error: Exception) -> Note:
    """What a format did not foresee ends the reading of a bundle, and nothing else."""
    why = f"reading it as {format.name} broke off: {type(error).__name__}: {str(error)[:200]}"
    return Note(file=bundle[0].name if bundle else format.name, place="$", why=why, hint="What came before it is kept")


def choose(format: str, entry: StreamEntry, told: set[str]) -> Format | None:
    """The format that reads an entry; None, with a note, where it is of none, or not of the one that is named.

    Nothing is lost by a file that was only found in a folder or an archive. `told`: what was said of formats that
    claim the same file, which is said of the first such file only.
    """
    head = head_of(entry)
    asked = entry is entry.disk and not entry.disk.within_folder
    if format != "auto":
        named = get_format(format)
        if claims(entry, head, [named]):
            return named
        others = claims(entry, head, formats().values())
        hint = f"It looks like {others[0].name}" if others else None
        entry.say("$", f"it is not of the format {format}: {looks_like(entry, head)}", hint=hint, lost=asked)
        return None
    claiming = claims(entry, head, formats().values())
    if not claiming:
        looks = looks_like(entry, head)
        hint = "Save it as UTF-8" if looks == "UTF-16 text" else f"Formats: {', '.join(formats())}" if asked else None
        entry.say("$", f"no format knows it: {looks}", hint=hint, lost=asked)
        return None
    # What reads whatever nobody else does is no other opinion of a file.
    also = ", ".join(other.name for other in claiming[1:] if not getattr(other, "general", False))
    if also:
        why = f"read as {claiming[0].name}; {also} would read it too"
        if why not in told:
            told.add(why)
            entry.say("$", why, hint=f"Name {also} to have it read so", lost=False)
    return claiming[0]
