"""Entries: what every kind of file has in common, files on disk, and bytes in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from agentworld.ingest.decoding import decode
from agentworld.ingest.entry import BadDocument
from agentworld.ingest.format import Notes, Shape
from agentworld.ingest.limits import USUAL, Limits
from agentworld.ingest.run import Note
from agentworld.ingest.shapes import shape_of
from agentworld.ingest.splitting import Oversized, lines, values
from agentworld.ingest.unpacking import CHUNK, BrokenOff

_SAID = 10_000


class StreamEntry(ABC):
    """An entry over `_stream`, which gives its bytes and raises BrokenOff where they end early."""

    def __init__(self, name: str, size: int, *, limits: Limits = USUAL, note: Notes | None = None) -> None:
        self.name = name
        self.size = size
        self.limits = limits
        self.notes: list[Note] = []  # where nobody takes them
        self.note: Notes = note or self.notes.append
        self.disk: DiskEntry | None = None  # the file that it is, or is in
        self.noted: object = None  # see Format
        self._said: set[str] = set()
        self._shape: Shape | None = None
        self._begin: bytes | None = None
        self._whole = False  # whether that is all of it
        self._documents: list[tuple[str, Any]] | None = None

    @abstractmethod
    def _stream(self) -> Iterator[bytes]:
        """Its bytes in pieces."""

    def say(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        """A note on this entry, once."""
        if (key := f"{place}: {why}") not in self._said:
            if len(self._said) < _SAID:
                self._said.add(key)
            self.note(Note(file=self.name, place=place, why=why, hint=hint, lost=lost))

    def chunks(self) -> Iterator[bytes]:
        """See Entry."""
        if self._begin is not None and self._whole:
            yield self._begin
            return
        seen = 0
        try:
            for chunk in self._stream():
                seen += len(chunk)
                if (over := seen - self.limits.member_bytes) > 0:
                    yield chunk[: len(chunk) - over]
                    raise BrokenOff(
                        f"it is larger than {self.limits.member_bytes} bytes; the rest is not read", "See --max-file"
                    )
                yield chunk
        except BrokenOff as broken:
            self.say(f"byte {seen}", str(broken), hint=broken.hint)
        except OSError as error:
            self.say(f"byte {seen}", f"it cannot be read: {error.strerror or error}")

    def start(self, count: int = CHUNK) -> bytes:
        """The first bytes, up to `count`, which are kept."""
        if self._begin is None:
            parts, held, whole = [], 0, True
            for chunk in self.chunks():
                parts.append(chunk)
                held += len(chunk)
                if held > CHUNK:
                    whole = False
                    break
            self._begin, self._whole = b"".join(parts), whole
        return self._begin[:count]

    def keep(self, documents: list[tuple[str, Any]]) -> None:
        """All documents with their places, for who reads them next, once."""
        self._documents = documents

    def forget(self) -> None:
        """Let go of what is kept."""
        self._begin, self._documents = None, None

    @property
    def shape(self) -> Shape:
        """What its bytes look like."""
        if self._shape is None:
            self._shape = shape_of(self.name, self.start())
        return self._shape

    def read(self) -> bytes:
        """See Entry."""
        parts, held = [], 0
        for chunk in self.chunks():
            parts.append(chunk)
            held += len(chunk)
            if held > self.limits.document_bytes:
                raise BadDocument("$", self._too_large())
        return b"".join(parts)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """See Entry."""
        for number, line in lines(_without_mark(self.chunks()), self.limits.document_bytes):
            if isinstance(line, Oversized):
                self.say(
                    f"line {number}",
                    f"the line is longer than {self.limits.document_bytes} bytes",
                    hint="See --max-document",
                )
            else:
                yield number, line

    def document(self) -> Any:
        """See Entry."""
        kept, self._documents = self._documents, None
        if kept is not None and len(kept) == 1 and kept[0][0] == "$":
            if isinstance(kept[0][1], BadDocument):
                raise kept[0][1]
            return kept[0][1]
        return self._decode(self.read().removeprefix(b"\xef\xbb\xbf"), "$")

    def documents(self) -> Iterator[tuple[str, Any]]:
        """See Entry."""
        if self._documents is not None:
            kept, self._documents = self._documents, None
            yield from kept
            return
        if self.shape == "json":
            try:
                value = self.document()
            except BadDocument:
                pass  # Where there are several, or one is broken, they are taken apart.
            else:
                yield "$", value
                return
        if self.shape == "jsonl":
            for number, line in self.lines():
                yield self._value(line, f"line {number}")
            return
        within: Literal["array", "text"] = "array" if self.shape == "array" else "text"
        for index, value in enumerate(values(_without_mark(self.chunks()), self.limits.document_bytes, within)):
            place = f"$[{index}]" if within == "array" else f"document {index + 1}" if index else "$"
            if isinstance(value, Oversized):
                yield place, BadDocument(place, self._too_large())
            elif isinstance(value, BadDocument):
                yield place, BadDocument(place, value.why)
            else:
                yield self._value(value, place)

    def _too_large(self) -> str:
        return f"the document is larger than {self.limits.document_bytes} bytes; --max-document raises the limit"

    def _value(self, data: bytes, place: str) -> tuple[str, Any]:
        try:
            return place, self._decode(data, place)
        except BadDocument as bad:
            return place, bad

    def _decode(self, data: bytes, place: str) -> Any:
        value, remarks = decode(data, place, self.limits.depth)
        for remark in remarks:
            self.say(place, remark.why, lost=remark.lost)
        return value


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Without a byte order mark of UTF-8."""
    first = True
    for chunk in chunks:
        yield chunk.removeprefix(b"\xef\xbb\xbf") if first else chunk
        first = False


class DiskEntry(StreamEntry):
    """A file on disk."""

    def __init__(
        self, path: Path, name: str | None = None, *, limits: Limits = USUAL, note: Notes | None = None
    ) -> None:
        super().__init__(name or path.name, path.stat().st_size, limits=limits, note=note)
        self.path = path
        self.within_folder = name is not None
        self.position = 0  # how far it has been read
        self.disk = self

    def _stream(self) -> Iterator[bytes]:
        with open(self.path, "rb", buffering=0) as file:
            position = 0
            # Asked for more than there is, Python takes memory for all that was asked for.
            wanted = min(CHUNK, self.size + 1)
            while chunk := file.read(wanted):
                position += len(chunk)
                # It may have grown since it was found.
                wanted = CHUNK if position > self.size else min(CHUNK, self.size - position + 1)
                self.position = max(self.position, position)
                yield chunk


class BytesEntry(StreamEntry):
    """Bytes in memory: members of archives that need random access, and what tests make."""

    def __init__(self, data: bytes, name: str, *, limits: Limits = USUAL, note: Notes | None = None) -> None:
        super().__init__(name, len(data), limits=limits, note=note)
        self.data = data

    def _stream(self) -> Iterator[bytes]:
        for begin in range(0, len(self.data), CHUNK):
            yield self.data[begin : begin + CHUNK]
