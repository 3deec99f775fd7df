"""Columns of many rows as PostgreSQL reads arrays in binary, so that one statement takes all of the rows."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import psycopg
from psycopg import pq
from psycopg.adapt import Dumper

_HEADER = struct.Struct(">5i")  # dimensions, whether any is null, type, how many, number of the first
_size = struct.Struct(">i").pack
_SIZE = 4  # bytes of it
_NULL = _size(-1)
_NUMBERS = np.dtype([("size", ">i4"), ("bits", ">u8")])


class Column:
    """One column of several rows, or the value that all of them have. `data`: as the server reads it."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _Int8(Column):
    __slots__ = ()


class _Float8(Column):
    __slots__ = ()


class _Text(Column):
    __slots__ = ()


class _Bytea(Column):
    __slots__ = ()


class _OneInt8(Column):
    __slots__ = ()


class _OneFloat8(Column):
    __slots__ = ()


class _OneText(Column):
    __slots__ = ()


class _OneBytea(Column):
    __slots__ = ()


class _Kind(NamedTuple):
    of: type[Column]
    one: type[Column]
    element: int  # the server's number of the type
    whole: int  # and of its arrays
    encode: Callable[[Sequence[Any]], bytes]


def column(kind: str, values: Sequence[Any]) -> Column:
    """The values, at least one, of a column of the type `kind`: int8, float8, text or bytea."""
    of, _, element, _, encode = _KINDS[kind]
    return of(_HEADER.pack(1, int(None in values), element, len(values), 1) + encode(values))


def one_for_all(kind: str, value: Any) -> Column | None:
    """The value of a column of which all rows have the same."""
    if value is None:
        return None
    found = _KINDS[kind]
    return found.one(found.encode((value,))[_SIZE:])


def is_alike(kind: str, values: Sequence[Any]) -> bool:
    """Whether `one_for_all` of the first can stand for all of them."""
    first = values[0]
    if values[-1] != first or values.count(first) != len(values):
        return False
    return kind != "float8" or first != 0  # Zeros of either sign are equal, and not the same.


def register(connection: psycopg.Connection[Any]) -> None:
    """Let statements of the connection take columns as parameters."""
    for kind in _KINDS.values():
        for of, oid in ((kind.of, kind.whole), (kind.one, kind.element)):
            of_kind = {"oid": oid, "format": pq.Format.BINARY, "dump": lambda _, column: column.data}
            connection.adapters.register_dumper(of, type("ColumnDumper", (Dumper,), of_kind))


def _whole(values: Sequence[int | None]) -> bytes:
    return _numbers("q", values)


def _floats(values: Sequence[float | None]) -> bytes:
    return _numbers("d", values)


def _numbers(code: str, values: Sequence[Any]) -> bytes:
    there = [value for value in values if value is not None] if None in values else values
    rows = np.empty(len(there), _NUMBERS)
    rows["size"] = rows["bits"].itemsize
    rows["bits"] = np.frombuffer(array(code, there), dtype=np.uint64)  # An array takes nothing but such numbers.
    data = rows.tobytes()
    if there is values:
        return data
    width = _NUMBERS.itemsize
    found = iter(range(0, len(data), width))
    return b"".join([_NULL if value is None else data[(at := next(found)) : at + width] for value in values])


def _texts(values: Sequence[str | None]) -> bytes:
    return _bytes([None if value is None else value.encode() for value in values])


def _bytes(values: Sequence[bytes | None]) -> bytes:
    if None not in values and len(sizes := set(map(len, values))) == 1:  # type: ignore[arg-type]
        size = _size(sizes.pop())
        return size + size.join(values)  # type: ignore[arg-type]  # None is none of them.
    return b"".join([_NULL if value is None else _size(len(value)) + value for value in values])


_KINDS = {
    "int8": _Kind(_Int8, _OneInt8, 20, 1016, _whole),
    "float8": _Kind(_Float8, _OneFloat8, 701, 1022, _floats),
    "text": _Kind(_Text, _OneText, 25, 1009, _texts),
    "bytea": _Kind(_Bytea, _OneBytea, 17, 1001, _bytes),
}
