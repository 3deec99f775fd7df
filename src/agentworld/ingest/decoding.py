"""JSON of strangers to values: bounded in depth, and with what JSON's own rules leave open decided and said."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from agentworld.ingest.entry import BadDocument
from agentworld.records import exact_json

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CONSTANT = re.compile(rb"NaN|Infinity")
_BYTE = re.compile(r"\(byte (\d+)\)")


def decode(data: bytes, place: str, depth: int) -> tuple[Any, bool]:
    """The value of JSON text, and whether it had NaN or infinity, which come back as null.

    BadDocument where it is no JSON, or nests deeper than `depth`. Lone surrogates and whole numbers of any size are
    kept. Of a key that is there twice the last value counts, as for every reader of JSON in Python.
    """
    if data.count(b"[") + data.count(b"{") > depth and _deeper(data, depth):
        raise BadDocument(place, f"objects and lists nest more than {depth} deep")
    try:
        return exact_json.decode(data), False
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if _CONSTANT.search(data):
            try:
                return _with_constants(data), True
            except (ValueError, RecursionError):
                pass
        raise BadDocument(place, _why(data, error)) from None


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


def _with_constants(data: bytes) -> Any:
    return json.loads(data, parse_constant=lambda name: None)


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
