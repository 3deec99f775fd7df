"""Trajectories in the order of a value that an index keeps: what may be asked for, the order, and its cursors."""

from __future__ import annotations

import base64
import binascii
import operator
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from agentworld.errors import QueryError
from agentworld.pool.base import check_order, no_cursor
from agentworld.pool.bounds import MAX_INTEGER

SORTS = ("reward", "priority", "status", "readiness", "channel", "group_id", "user")
"""Fields that trajectories can be sorted by."""

Value = float | str | None


class Sort(NamedTuple):
    """By which field, and whether from the highest value on. Absent values come last either way; those of one value
    come as they began, from the highest on the latest first.
    """

    name: str
    down: bool


class Entry(NamedTuple):
    """The place of a trajectory in the order: its value, and its number in the order in which they began."""

    value: Value
    number: int


class _Cursor(msgspec.Struct, array_like=True):
    sort: str
    value: float | str | None
    number: int


def read_sort(sort: str, order: str) -> Sort:
    """What `NAME` and `-NAME` mean; QueryError where trajectories are not sorted so."""
    name = sort.removeprefix("-") if isinstance(sort, str) else ""
    if name not in SORTS:
        raise QueryError(
            f"trajectories are not sorted by {name[:40]!r}",
            path="sort",
            hint=f"Known: {', '.join(SORTS)}; with - before it from the highest value on",
        )
    check_order(order)
    if order != "oldest":
        raise QueryError("order goes with no sort", path="order", hint="Send one of both")
    return Sort(name, sort.startswith("-"))


def cursor_after(sort: Sort, entry: Entry) -> str:
    """A cursor that goes on after an entry."""
    kept = msgspec.json.encode(_Cursor(_written(sort), entry.value, entry.number))
    return base64.urlsafe_b64encode(kept).decode().rstrip("=")


def read_cursor_after(cursor: str | None, sort: Sort) -> Entry | None:
    """The entry to go on after; QueryError where the cursor is none of this order."""
    if cursor is None:
        return None
    try:
        kept = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True)
        read = msgspec.json.decode(kept, type=_Cursor)
    except (TypeError, ValueError, binascii.Error, msgspec.MsgspecError):
        raise no_cursor(cursor) from None
    text = sort.name not in ("reward", "priority")
    fits = read.value is None or isinstance(read.value, str) == text
    if read.sort != _written(sort) or not fits or not 0 <= read.number <= MAX_INTEGER:
        raise no_cursor(cursor)
    return Entry(read.value, read.number)


def in_order(entries: Iterable[Entry], sort: Sort) -> list[Entry]:
    """All of them in the order."""
    there: list[Entry] = []
    absent: list[Entry] = []
    for entry in entries:
        (absent if entry.value is None else there).append(entry)
    return [*sorted(there, reverse=sort.down), *sorted(absent, key=operator.itemgetter(1), reverse=sort.down)]


def comes_after(entry: Entry, other: Entry | None, sort: Sort) -> bool:
    """Whether the entry comes after another one; all come after None."""
    if other is None:
        return True
    if (entry.value is None) != (other.value is None):
        return entry.value is None
    if entry.value is None:
        return entry.number < other.number if sort.down else entry.number > other.number
    return entry < other if sort.down else entry > other


def _written(sort: Sort) -> str:
    return f"-{sort.name}" if sort.down else sort.name
