"""JSON of strangers to values: bounded in depth, and with what JSON's own rules leave open decided and said."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from agentworld.ingest.entry import BadDocument
from agentworld.records import exact_json

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
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
    if data.count(b"[") + data.count(b"{") > depth and _deeper(data, depth):
        raise BadDocument(place, f"objects and lists nest more than {depth} deep")
    try:
        return exact_json.decode(data), ()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        try:
            return _lenient(data)
        except (ValueError, RecursionError):
            raise BadDocument(place, _why(data, error)) from None


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


def _deeper(data: bytes, depth: int) -> bool:
    """Whether brackets outside of texts nest deeper: each round takes the innermost pairs away."""
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    for _ in range(depth):
        if not brackets:
            return False
        shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(brackets):
            return False  # Not balanced: no JSON, which the decoder says better.
        brackets = shorter
    return bool(brackets)


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
