"""Lines and JSON values out of a stream of bytes, in memory for one of them at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from agentworld.ingest.entry import BadDocument

# Up to the next bracket that stands outside of texts; nothing where the text or the bracket has not come yet.
_TO_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+[\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,\[\]{}"]++)(?=[\s,\]])', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
_OPENING = b"[{"
_LEAST = 64 * 1024
_MORE = "; what follows is not read. --max-document raises the limit"


class Oversized:
    """Stands for a line or a value that is over the limit; its bytes are gone."""


OVERSIZED = Oversized()


def lines(chunks: Iterator[bytes], limit: int) -> Iterator[tuple[int, bytes | Oversized]]:
    """Lines with their numbers from 1, without their ends; empty ones are left out."""
    number, pending, held, over = 0, [], 0, False  # type: ignore[var-annotated]
    for chunk in chunks:
        parts = _split(chunk)
        for part in parts[:-1]:
            number += 1
            if over or held + len(part) > limit:
                yield number, OVERSIZED
            else:
                line = (b"".join([*pending, part]) if pending else part).strip(b"\r \t")
                if line:
                    yield number, line
            pending, held, over = [], 0, False
        if not over and parts[-1]:
            pending.append(parts[-1])
            held += len(parts[-1])
            if held > limit:
                pending, over = [], True
    if over:
        yield number + 1, OVERSIZED
    elif line := b"".join(pending).strip(b"\r \t"):
        yield number + 1, line


def _split(chunk: bytes) -> list[bytes]:
    """`chunk.split(b"\\n")`, which looks at every byte by itself; so long lines come in a quarter of the time."""
    parts, begin, find = [], 0, chunk.find
    while (end := find(b"\n", begin)) >= 0:
        parts.append(chunk[begin:end])
        begin = end + 1
    parts.append(chunk[begin:])
    return parts


class _Window:
    """The bytes that are looked at; grows by at least its own size, so that looking again costs no more than once."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.data = b""
        self.ended = False

    def grow(self) -> bool:
        """More bytes at the end; False where there are none."""
        wanted, parts = max(len(self.data), _LEAST), [self.data]
        while wanted > 0:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.ended = True
                break
            parts.append(chunk)
            wanted -= len(chunk)
        self.data = b"".join(parts)
        return len(parts) > 1

    def drop(self, count: int) -> None:
        self.data = self.data[count:]

    def skip_space(self, at: int) -> int:
        while True:
            found = _SPACE.match(self.data, at)
            at = found.end() if found else at
            if at < len(self.data) or not self.grow():
                return at


def values(
    chunks: Iterator[bytes], limit: int, within: Literal["array", "text"]
) -> Iterator[bytes | Oversized | BadDocument]:
    """The JSON values of an array, or those of a text one after another, as the bytes of each.

    What comes after a place where the text stops to be such a sequence is a BadDocument (its place is left to the
    caller), and then it ends. Brackets alone decide where a value ends; whether it is JSON the decoder says.
    """
    window = _Window(iter(chunks))
    at = window.skip_space(0)
    if within == "array":
        at = window.skip_space(at + 1)
        if window.data[at : at + 1] == b"]":
            yield from _rest(window, at + 1)
            return
    while True:
        if at >= len(window.data):
            if within == "array":
                yield BadDocument("", "the array is not closed: the file ends too early")
            return
        window.drop(at)
        end, over = _end_of_value(window, limit)
        if end is None:
            yield over if isinstance(over, BadDocument) else OVERSIZED
            return
        yield OVERSIZED if over or end > limit else window.data[:end]
        at = window.skip_space(end)
        if within == "text":
            continue
        mark = window.data[at : at + 1]
        if mark == b",":
            at = window.skip_space(at + 1)
            if window.data[at : at + 1] == b"]":
                yield BadDocument("", "a comma stands before the end of the array")
                return
        elif mark == b"]":
            yield from _rest(window, at + 1)
            return
        elif mark:
            yield BadDocument("", f"a comma or the end of the array is missing, found {window.data[at : at + 10]!r}")
            return


def _rest(window: _Window, at: int) -> Iterator[BadDocument]:
    at = window.skip_space(at)
    if at < len(window.data):
        yield BadDocument("", f"more follows the end of the array: {window.data[at : at + 10]!r}")


def _end_of_value(window: _Window, limit: int) -> tuple[int | None, bool | BadDocument]:
    """Where the value at the window's beginning ends, and whether bytes of it were dropped as it is over the limit;
    None and a reason where it does not end.
    """
    if window.data[:1] not in (b"[", b"{"):
        return _end_of_scalar(window, limit)
    at = depth = 0
    over = False
    match = _TO_BRACKET.match
    while True:
        found = match(window.data, at)
        if found is None:
            if len(window.data) - at > limit:
                return None, BadDocument("", f"a text is longer than {limit} bytes{_MORE}")
            if at > limit:
                window.drop(at)
                at, over = 0, True
            if not window.grow():
                return None, BadDocument("", "the JSON ends too early")
            continue
        at = found.end()
        if window.data[at - 1] in _OPENING:
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return at, over


def _end_of_scalar(window: _Window, limit: int) -> tuple[int | None, bool | BadDocument]:
    while True:
        found = _SCALAR.match(window.data)
        if found is not None:
            return found.end(), False
        if len(window.data) > limit:
            return None, BadDocument("", f"a value is longer than {limit} bytes{_MORE}")
        if not window.grow():
            if window.data[:1] in b",]}:":
                return None, BadDocument("", f"a value is missing before {window.data[:10]!r}")
            return len(window.data), False
