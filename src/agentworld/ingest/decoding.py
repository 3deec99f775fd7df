"""JSON of strangers to values: bounded in depth, and with what JSON's own rules leave open decided and said."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec
import numpy as np

from agentworld.ingest.entry import BadDocument
from agentworld.records import exact_json

_QUOTE, _COLON = b'":'
_ESCAPE = b"\\"[0]
_LONG = 4096
_BYTE = re.compile(r"\(byte (\d+)\)")


class Remark(msgspec.Struct, frozen=True):
    """What was decided where JSON, or UTF-8, leaves it open or forbids it."""

    why: str
    lost: bool


_CONSTANTS = Remark("NaN, infinity and numbers that are too large are read as null", lost=True)
_DIGITS = Remark("a whole number of thousands of digits is read as text", lost=False)
_NO_UTF8 = Remark("bytes that are no UTF-8 are read as U+FFFD", lost=True)
_CONTROLS = Remark("control characters stand in texts as they are, which JSON forbids; they are kept", lost=False)


def decode(data: bytes, place: str, depth: int) -> tuple[Any, tuple[Remark, ...]]:
    """The value of JSON text, and what must be said of it.

    BadDocument where it is no JSON, or nests deeper than `depth`. Lone surrogates and whole numbers of any size are
    kept. Of a key that is there twice the last value counts.
    """
    remarks: tuple[Remark, ...] = ()
    try:
        value = exact_json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        try:
            value, remarks = _lenient(data)
        except (ValueError, RecursionError):
            raise BadDocument(place, _why(data, error)) from None
    keys = _keys(value, depth)
    if keys is None:
        raise BadDocument(place, f"objects and lists nest more than {depth} deep")
    if _may_have_more(keys, data) and (twice := _twice(data)):
        remarks = (*remarks, Remark(f"the key {twice[0][:100]!r} is there twice; its last value counts", lost=True))
    return value, remarks


def _may_have_more(keys: int, data: bytes) -> bool:
    """Whether JSON text may have more keys than so many."""
    # A key ends in `":`, and in a text that is `\\":`.
    if len(data) < _LONG:
        colons = data.count(b'":')
        return colons != keys and colons - data.count(b'\\":') != keys
    # Bytes are looked through one by one for several of them, which takes longer than reading them as JSON does.
    codes = np.frombuffer(data, dtype=np.uint8)
    ends = (codes[:-1] == _QUOTE) & (codes[1:] == _COLON)
    colons = int(np.count_nonzero(ends))
    return colons != keys and colons - int(np.count_nonzero(ends[1:] & (codes[:-2] == _ESCAPE))) != keys


def _keys(value: Any, depth: int) -> int | None:
    """How many keys the objects have together; None where they nest deeper."""
    try:
        if value.__class__ is dict:
            return _keys_of(value, depth)
        return _keys_in(value, depth) if value.__class__ is list else 0
    except RecursionError:
        return None


def _keys_of(value: dict[str, Any], left: int) -> int:
    """How many keys an object has, with those of what is in it; RecursionError where more than `left` are nested."""
    if not left:
        raise RecursionError
    keys = len(value)
    for child in value.values():
        kind = child.__class__
        if kind is dict:
            keys += _keys_of(child, left - 1)
        elif kind is list:
            keys += _keys_in(child, left - 1)
    return keys


def _keys_in(value: list[Any], left: int) -> int:
    """As `_keys_of`, in a list."""
    if not left:
        raise RecursionError
    keys = 0
    for child in value:
        kind = child.__class__
        if kind is dict:
            keys += _keys_of(child, left - 1)
        elif kind is list:
            keys += _keys_in(child, left - 1)
    return keys


def _twice(data: bytes) -> list[str]:
    """Keys that an object has more than once."""
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            seen: set[str] = set()
            found.extend(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return made

    try:
        json.loads(data.decode(errors="replace"), strict=False, object_pairs_hook=pairs, parse_int=str)
    except (ValueError, RecursionError):
        return []
    return found


def _lenient(data: bytes) -> tuple[Any, tuple[Remark, ...]]:
    """What other writers of JSON write, by the standard library; ValueError where that is no JSON either."""
    said: dict[Remark, None] = {}

    def no_number(_: str) -> None:
        said[_CONSTANTS] = None

    def real(digits: str) -> float | None:
        value = float(digits)
        if math.isfinite(value):
            return value
        said[_CONSTANTS] = None
        return None

    def whole(digits: str) -> int | str:
        try:
            return int(digits)
        except ValueError:  # Python bounds how many digits it reads.
            said[_DIGITS] = None
            return digits

    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        said[_NO_UTF8] = None
    value = json.loads(text, strict=False, parse_constant=no_number, parse_float=real, parse_int=whole)
    if not said:
        said[_CONTROLS] = None
    return value, tuple(said)


def _why(data: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it nests too deep"
    said = str(error)
    if "truncated" in said:
        return f"the JSON ends too early, after {len(data)} bytes"
    found = _BYTE.search(said)
    if found:
        line = data.count(b"\n", 0, int(found[1])) + 1
        within = f", line {line} of it" if line > 1 else ""
        reason = _BYTE.sub("", said).removeprefix("JSON is malformed: ").strip()
        return f"it is no JSON at byte {found[1]}{within}: {reason}"
    return f"it is no JSON: {said}"
