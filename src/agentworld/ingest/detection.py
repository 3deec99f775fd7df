"""Which format an entry is of, by its content."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from agentworld.ingest.entry import BadDocument
from agentworld.ingest.files import StreamEntry
from agentworld.ingest.format import Format, Head
from agentworld.ingest.shapes import UTF16

_DOCUMENTS = 8
_TEXT = 64 * 1024


def head_of(entry: StreamEntry) -> Head:
    """The beginning of an entry; malformed documents are left out of it."""
    documents: tuple[Any, ...] = ()
    if entry.shape in ("json", "jsonl", "array"):
        reading = entry.documents()
        read = list(islice(reading, _DOCUMENTS + 1))
        if len(read) <= _DOCUMENTS:
            entry.keep(read)
        documents = tuple(value for _, value in read[:_DOCUMENTS] if not isinstance(value, BadDocument))
    elif entry.shape in ("text", "yaml"):
        documents = (entry.start(_TEXT).decode("utf-8", "replace"),)
    return Head(name=entry.name, shape=entry.shape, documents=documents)


def claims(entry: StreamEntry, head: Head, formats: Iterable[Format]) -> list[Format]:
    """The formats that claim it, the most specific first."""
    return [format for format in formats if _claims(entry, format, head)]


def _claims(entry: StreamEntry, format: Format, head: Head) -> bool:
    try:
        return bool(format.claims(head))
    except Exception as error:
        # What a stranger's file makes a format stumble over is not of that format. If it is the format's own fault,
        # its author has to know.
        why = f"{format.name} broke off when it was asked whether it reads this: {type(error).__name__}"
        entry.say("$", f"{why}: {str(error)[:200]}", lost=False)
        return False


def looks_like(entry: StreamEntry, head: Head) -> str:
    """What an entry that no format claims looks like, for people."""
    start = entry.start(4)
    if start.startswith(UTF16):
        return "UTF-16 text"
    if not start:
        return "an empty file"
    if head.shape in ("text", "yaml", "binary"):
        return {"text": "text", "yaml": "YAML", "binary": "binary data"}[head.shape]
    kind = {"json": "a JSON document", "jsonl": "JSON lines", "array": "a JSON array"}[head.shape]
    if not head.documents:
        return f"{kind}, none of which can be read"
    first = head.documents[0]
    if isinstance(first, dict):
        keys = ", ".join(str(key)[:40] for key in islice(first, 12))
        return f"{kind} with the keys {keys}" if keys else f"{kind} without keys"
    return f"{kind} of {type(first).__name__} values"
