"""Rows of CSV out of a stream of bytes (RFC 4180: fields between quotes hold commas, line ends and doubled quotes), in
memory for one of them at a time.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from agentworld.ingest.splitting import OVERSIZED, Oversized

_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^,"]*))(,|$)')


def rows(chunks: Iterator[bytes], limit: int) -> Iterator[tuple[int, list[str] | Oversized]]:
    """The rows with the numbers of their first lines, from 1; lines that hold nothing are left out. A row of more than
    `limit` characters is Oversized, and bytes that are no UTF-8 are U+FFFD.
    """
    held: list[str] = []
    begun = size = quotes = 0
    over = False
    for number, line in enumerate(_lines(chunks, limit), 1):
        if not quotes % 2:
            held, begun, size, quotes, over = [], number, 0, 0, False
        quotes += line.count('"')
        size += len(line)
        over = over or size > limit
        if over:
            held.clear()
        else:
            held.append(line)
        if not quotes % 2 and (over or size > line.endswith("\r")):
            yield begun, OVERSIZED if over else fields("\n".join(held).removesuffix("\r"))
            size = 0
    if quotes % 2:
        yield begun, OVERSIZED if over else fields("\n".join(held) + '"')  # The file ends within a field.


def fields(row: str) -> list[str]:
    """The fields of one row. A quote that stands within a field, which the format has not, ends the reading of fields:
    what is left is the last one.
    """
    found: list[str] = []
    at = 0
    while True:
        match = _FIELD.match(row, at)
        if match is None:
            return [*found, row[at:]]
        quoted = match[1]
        found.append(match[2] if quoted is None else quoted.replace('""', '"'))
        at = match.end()
        if not match[3]:
            return found


def _lines(chunks: Iterator[bytes], limit: int) -> Iterator[str]:
    """Lines as text without their ends; pieces of `limit` characters at most of those that are longer."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    left: list[str] = []
    held = 0
    for chunk in chunks:
        first, *others = decoder.decode(chunk).split("\n")
        left.append(first)
        held += len(first)
        for other in others:
            yield "".join(left)
            left, held = [other], len(other)
        if held > limit:
            yield "".join(left)
            left, held = [], 0
    if last := "".join(left):
        yield last
