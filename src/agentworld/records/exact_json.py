"""JSON for any text that Python can hold, lone surrogates included, and for whole numbers of any size.

msgspec does the work. Where it refuses a lone surrogate, which JSON can say only as an escape such as `\\ud800`, the
standard library takes over. Two lone surrogates that together make a pair come back as the character of the pair: JSON
has one spelling for both.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(rb"\\u")
_BACKSLASH = 0x5C
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def has_escapes(data: bytes) -> bool:
    """Whether JSON text holds a character by its number, as it says lone surrogates and U+0000."""
    # Bytes have no method that looks for two as fast, and for one it is the number that is looked for without a detour.
    return _BACKSLASH in data and _ESCAPE.search(data) is not None


def encode(value: Any) -> bytes:
    """`value` (records, containers, texts, numbers) as compact JSON; raises what msgspec raises for what is no JSON."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return encode_lenient(value)


def encode_lenient(value: Any) -> bytes:
    """As `encode`, by the standard library: each lone surrogate as its escape, so that unequal values stay unequal."""
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text).encode()


@overload
def decode(data: bytes) -> Any: ...


@overload
def decode(data: bytes, type: type[T]) -> T: ...


def decode(data: bytes, type: Any = Any) -> Any:
    """The value of JSON text, checked against `type`; raises msgspec's errors."""
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not _ESCAPED_SURROGATE.search(data):
            raise
        try:
            value = json.loads(data, parse_constant=_refuse_constant)
        except ValueError:
            value = _Broken
        if value is _Broken:
            raise
    return msgspec.convert(value, type)


class _Broken:
    """Stands for text that is no JSON for the standard library either."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
