"""Values of a caller's as plain ones of Python's own, as every store holds them and gives them back."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.records import check_depth

_PLAIN = (str, bool, int, float)
_EXACT = (str, bool, int)  # of these, those that JSON has a word for whatever their value


def as_number(value: Any) -> Any:
    """A scalar of numpy, or of what is like it (`.item()`, no dimensions), as the value of Python's own that it is;
    anything else as it is.
    """
    if value is None or value.__class__ in _PLAIN or not hasattr(value, "item") or getattr(value, "ndim", 0) != 0:
        return value
    found = value.item()
    return found if found.__class__ in _PLAIN else value


def plain_json(value: Any, path: str) -> Any:
    """Free JSON: objects with texts as keys, lists (tuples become such), texts, numbers (scalars of numpy become such).

    InvalidRequestError names what is no JSON, nests too deep, or is a number that JSON has no word for.
    """
    if value.__class__ is dict and _is_flat(value):
        return dict(value)
    check_depth(value, path)
    return _plain(value, path)


def _is_flat(value: dict[Any, Any]) -> bool:
    """Whether nothing in it needs a closer look, as in the metadata of most steps."""
    for key, inner in value.items():
        if key.__class__ is not str or not (inner is None or inner.__class__ in _EXACT):
            return False
    return True


def _plain(value: Any, path: str) -> Any:
    if value is None or value.__class__ in _EXACT:
        return value
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InvalidRequestError(
                    f"the key of an object must be a text, not {type(key).__name__}", path=path, hint="Send it as text"
                )
        return {str(key): _plain(inner, f"{path}.{ascii(key)[1:-1][:40]}") for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, f"{path}[{number}]") for number, inner in enumerate(value)]
    if isinstance(value, msgspec.Struct):
        return _plain(msgspec.to_builtins(value), path)
    plain = as_number(value)
    if plain.__class__ not in _PLAIN:
        raise InvalidRequestError(
            f"{type(value).__name__} is no JSON", path=path, hint="Send texts, numbers, lists and objects"
        )
    if isinstance(plain, float) and not math.isfinite(plain):
        raise InvalidRequestError(f"{plain} is no number that JSON has", path=path, hint="Send null, or a text")
    return plain
