"""Text as the stores hold it: without U+0000 and lone surrogates, which PostgreSQL and UTF-8 do not take.

What cannot be held stands as one character at the start of plane 16, a private-use area: U+100000 + n for the surrogate
U+D800 + n, U+100800 for U+0000. U+100801 before a character of that range says that the character stands for itself.
So unequal texts stay unequal, and a text without such characters (nearly every one) is held as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from agentworld.records import exact_json

T = TypeVar("T")

_FIRST, _NUL, _ITSELF = 0x100000, 0x100800, 0x100801
_TO_STORE = re.compile("[\x00\ud800-\udfff\U00100000-\U00100801]")
_STORED = re.compile("\U00100801([\U00100000-\U00100801])|([\U00100000-\U00100800])")
_NOT_HELD = re.compile("[\x00\ud800-\udfff]")
_MAPPED_BYTES = b"\xf4\x80"  # how U+100000 to U+100FFF begin in UTF-8
_FIRST_MAPPED = _MAPPED_BYTES[0]
_encoder = msgspec.json.Encoder()


def storable(text: str) -> str:
    """The text as it is stored."""
    if text.isascii() and "\0" not in text:
        return text
    return _TO_STORE.sub(_map, text)


def original(text: str) -> str:
    """The text that `storable` made this of."""
    return text if text.isascii() else _STORED.sub(_unmap, text)


def storable_value(value: Any) -> Any:
    """A JSON value (dicts, lists, texts, numbers) with `storable` texts and keys."""
    return _mapped(value, storable)


def original_value(value: Any) -> Any:
    """A JSON value with the texts and keys that were said."""
    return _mapped(value, original)


def sought(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters of a statement that looks something up, with texts that every engine takes: what it could not hold
    is sought as it would be stored. Texts that are so already stay as they are.
    """
    for value in parameters.values():
        if value.__class__ is str and (not value.isascii() or "\0" in value):
            break
    else:
        return parameters
    changed = {
        name: storable(value)
        for name, value in parameters.items()
        if value.__class__ is str and not (value.isascii() and "\0" not in value) and _NOT_HELD.search(value)
    }
    return {**parameters, **changed} if changed else parameters


def stored_json(value: Any) -> bytes:
    """Records or JSON values as JSON for a store; raises what msgspec raises for what is no JSON."""
    try:
        data = _encoder.encode(value)
        # The escape of U+0000; a backslash before it is no harm, it only takes the longer way.
        if data.rfind(b"\\u0000") < 0 and (_FIRST_MAPPED not in data or not _is_mapped(data)):
            return data
    except UnicodeEncodeError:
        pass
    return _encoder.encode(storable_value(msgspec.to_builtins(value)))


def stored_spoken(value: Any, spoken: bytes) -> bytes:
    """`stored_json` of a value whose exact JSON is known already."""
    return stored_json(value) if exact_json.has_escapes(spoken) or _is_mapped(spoken) else spoken


def read_json(data: bytes | str, type: type[T]) -> T:
    """What `stored_json` made of a value of this type."""
    raw = data.encode() if isinstance(data, str) else data
    if not _is_mapped(raw):
        return msgspec.json.decode(raw, type=type)
    return msgspec.convert(original_value(msgspec.json.decode(raw)), type)


def spoken_json(data: bytes) -> bytes:
    """Stored JSON as the JSON that was said, key order and numbers kept; what digests are over."""
    return data if not _is_mapped(data) else exact_json.encode(original_value(msgspec.json.decode(data)))


def _is_mapped(data: bytes) -> bool:
    # One byte is looked for much faster than two, and faster still by its number.
    return _FIRST_MAPPED in data and _MAPPED_BYTES in data


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(inner, change) for inner in value]
    return value


def _map(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code == 0:
        return chr(_NUL)
    return chr(_FIRST + code - 0xD800) if code < _FIRST else chr(_ITSELF) + found.group()


def _unmap(found: re.Match[str]) -> str:
    if found.group(1):
        return found.group(1)
    code = ord(found.group(2))
    return "\0" if code == _NUL else chr(0xD800 + code - _FIRST)
