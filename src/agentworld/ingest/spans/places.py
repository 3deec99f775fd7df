"""Places that notes are about: within a document, which is within one of several files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Notes
from agentworld.ingest.run import Note
from agentworld.ingest.spans.node import Say

MARK = "\0"


def _documents(entry: Entry) -> Iterator[tuple[str, Any]]:
    return entry.documents()


class Reading:
    """Notes on several files: a place may name the file that it is in."""

    def __init__(self, note: Notes) -> None:
        self.file = ""
        self._note = note

    def at(self, place: str) -> str:
        """A place in the file that is being read, for later."""
        return f"{self.file}{MARK}{place}"

    def documents(
        self, bundle: Sequence[Entry], of: Callable[[Entry], Iterator[tuple[str, Any]]] = _documents
    ) -> Iterator[tuple[str, Any]]:
        """The documents of several files with their places, one file after the other; those that are none are told."""
        for entry in bundle:
            self.file = entry.name
            for place, document in of(entry):
                if isinstance(document, BadDocument):
                    self.say(place, document.why)
                else:
                    yield place, document

    def say(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        """See Say."""
        file, _, within_it = place.rpartition(MARK)
        self._note(Note(file=file or self.file, place=within_it, why=why, hint=hint, lost=lost))


def file_of(place: str) -> str | None:
    """The file that a place of `Reading.at` is in."""
    return place.rpartition(MARK)[0] or None


def within(say: Say, base: str) -> Say:
    """`say` for what is at `base`."""

    def inner(place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        say(f"{base}.{place}", why, hint=hint, lost=lost)

    return inner
