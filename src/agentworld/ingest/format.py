"""What a format is: how it is known, which files belong together, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from agentworld.ingest.entry import Entry
from agentworld.ingest.run import Note, Run

Shape = Literal["json", "jsonl", "array", "yaml", "text", "archive", "binary"]
Notes = Callable[[Note], None]


class Head(msgspec.Struct, kw_only=True, frozen=True):
    """The beginning of an entry: its name (with its folders), shape, and its first documents, decoded (at most 8, of
    one JSON document that one; of text its first 64 KiB as one string).
    """

    name: str
    shape: Shape
    documents: tuple[Any, ...] = ()


class Format(Protocol):
    """One format of files. `name` is what `agentworld import NAME` takes; `title` is for people. One with an attribute
    `general` that is true reads what nobody else does, and is not named beside those that read a file. One with
    `plain_chat` has no place for what a model thinks, so that it stands in the texts. One with a method `look(entry)`
    is shown each entry that it reads while its beginning is at hand, and may keep in `entry.noted` what its bundles
    need of that.
    """

    name: str
    title: str

    def claims(self, head: Head) -> bool:
        """Whether an entry is of this format, by its content; its name may help where the content allows several."""

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Which of the entries that it claimed belong together; most formats: each alone (`each_alone`)."""

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """Read them as a stream. What is malformed is noted with its place, and the rest is read on."""


def each_alone(entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
    """Every entry for itself."""
    return ([entry] for entry in entries)
