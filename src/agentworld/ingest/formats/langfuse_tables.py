"""Tables that Langfuse's interface exports: rows of CSV as the records that the same export has as JSON, and columns
that hold scores by their names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentworld.ingest.csv_rows import fields, rows
from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.files import StreamEntry
from agentworld.ingest.format import Head
from agentworld.ingest.spans.loose import number, unpacked
from agentworld.ingest.spans.node import Score
from agentworld.ingest.splitting import Oversized

_OBSERVATIONS = frozenset(("id", "traceId", "type", "input", "output"))
_TRACES = frozenset(("id", "timestamp", "userId", "sessionId", "tags"))
_SCORES = frozenset(("id", "traceId", "name", "value", "dataType"))
# Lists that are no scores; every other column with a list of numbers or texts is named after a score.
_LISTS = frozenset(
    ("input", "output", "metadata", "tags", "traceTags", "comments", "scores", "observations", "toolCalls",
     "toolCallNames", "toolDefinitions")
)  # fmt: skip
_MOST_SCORES = 100  # of one column


def is_table(head: Head) -> bool:
    """Whether an entry is a table of observations, traces or scores as CSV, by the names of its columns."""
    if head.shape != "text" or not head.documents or not isinstance(head.documents[0], str):
        return False
    named = set(fields(head.documents[0].removeprefix("\ufeff").partition("\n")[0].removesuffix("\r")))
    return any(columns <= named for columns in (_OBSERVATIONS, _TRACES, _SCORES))


def is_trace_row(document: Mapping[str, Any]) -> bool:
    """Whether a record is a row of the table of traces, which has no observations."""
    counted = "observationCount" in document or "bookmarked" in document
    return counted and "timestamp" in document and isinstance(document.get("id"), str) and "traceId" not in document


def documents(entry: Entry) -> Iterator[tuple[str, Any]]:
    """The records of an entry with their places; of CSV those of its rows."""
    if not isinstance(entry, StreamEntry) or entry.shape != "text":
        yield from entry.documents()
        return
    names: list[str] | None = None
    limit = entry.limits.document_bytes
    for line, row in rows(entry.chunks(), limit):
        place = f"line {line}"
        if isinstance(row, Oversized):
            why = f"the row is longer than {limit} characters; --max-document raises the limit"
            yield place, BadDocument(place, why)
        elif names is None:
            names = row
        elif len(row) != len(names):
            yield place, BadDocument(place, f"the row has {len(row)} fields, and the table has {len(names)} columns")
        else:
            said = ((name, _value(name, cell)) for name, cell in zip(names, row, strict=True))
            yield place, {name: value for name, value in said if value is not None}


def _value(name: str, cell: str) -> Any:
    """What a cell says; None where it says nothing. Texts stand as they are, or as JSON does."""
    if name == "value":
        return number(cell) if number(cell) is not None else cell or None
    if cell[:1] != '"':
        return unpacked(cell) or None
    try:
        return json.loads(cell, strict=False) or None
    except (ValueError, RecursionError):
        return cell


def scores(record: Mapping[str, Any], node: str) -> Iterator[Score]:
    """The scores of a row, each in a column that is named after it and holds the list of its values."""
    for name, given in record.items():
        if name in _LISTS or not isinstance(given, list):
            continue
        for value in given[:_MOST_SCORES]:
            if isinstance(value, str):
                yield Score(name=name, value={"True": 1.0, "False": 0.0}.get(value, value), node=node)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                yield Score(name=name, value=float(value), node=node)
