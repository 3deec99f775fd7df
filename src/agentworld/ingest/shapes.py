"""What the bytes of a file look like, before anything is known of its format."""

from __future__ import annotations

import codecs

from agentworld.ingest.decoding import decode
from agentworld.ingest.entry import BadDocument
from agentworld.ingest.format import Shape

_BY_LINES = (".jsonl", ".ndjson", ".jsonlines")
_YAML = (".yaml", ".yml")
_LOOKED_AT = 8
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def shape_of(name: str, start: bytes) -> Shape:
    """The shape of a file that begins with `start`; its name decides only what its beginning leaves open."""
    data = start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    lowered = name.lower()
    if data[:1] in (b"{", b"["):
        if lowered.endswith(_BY_LINES):
            return "jsonl"
        if _has_lines(data):
            return "jsonl"
        return "json" if data[:1] == b"{" else "array"
    if lowered.endswith(_BY_LINES) and _has_lines(data):
        return "jsonl"  # Its first line is broken, and others are not.
    if b"\0" in data or data.startswith(UTF16) or not _is_text(data):
        return "binary"
    return "yaml" if lowered.endswith(_YAML) else "text"


def _has_lines(data: bytes) -> bool:
    """Whether lines are JSON each for itself, and there are several."""
    lines = [line for line in data.split(b"\n", _LOOKED_AT)[:_LOOKED_AT] if line.strip()]
    if len(lines) < 2:
        return False
    # A document over several lines never has a whole object or list as a line at its beginning.
    return any(line[:1] in (b"{", b"[") and _is_value(line) for line in lines)


def _is_value(line: bytes) -> bool:
    try:
        decode(line.strip(), "", 1000)
    except BadDocument:
        return False
    return True


def _is_text(data: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True
