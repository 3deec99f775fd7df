"""One file to be read, on disk or within an archive, without being extracted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class Entry(Protocol):
    """`name`: as people know it, `folder/archive.zip!member.json` within an archive. `size`: bytes, uncompressed.

    What cannot be read (a broken archive, a line over the limit) is noted by the entry itself, and the rest is given.
    """

    name: str
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in pieces. Where a limit is passed or the file is broken they end early, which is noted."""

    def read(self) -> bytes:
        """All of it; BadDocument where it is over the limit of one document."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Lines with their numbers from 1, without their ends, empty ones left out; one over the limit of a document is
        noted and left out.
        """

    def document(self) -> Any:
        """All of it as JSON; raises BadDocument with the place."""

    def documents(self) -> Iterator[tuple[str, Any]]:
        """JSON documents with their places: lines of JSONL ("line 3"), elements of an array ("$[3]"), or the one ("$").
        A malformed one is a BadDocument as value, so that the rest is read on.
        """


class BadDocument(Exception):
    """`place` and `why` of JSON that cannot be read."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.place = place
        self.why = why
