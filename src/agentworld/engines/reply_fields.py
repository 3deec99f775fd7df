"""Reads fields of an engine's reply, each with its type and range; what does not fit is an EngineError that names it.

Null and a missing field are the same. A reply that says something impossible in one place cannot be trusted in
another, so nothing is repaired here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from agentworld.errors import EngineError, InvalidRequestError
from agentworld.records import Usage, VersionSpan
from agentworld.records.depth import check_depth

MAX_ID = 0xFFFFFFFF
MAX_COUNT = 2**31 - 1
MAX_VERSION = 2**63 - 1
MAX_NAME = 256
"""The most that a pool can hold."""


def refuse(name: str, wanted: str) -> NoReturn:
    """Say what a field of the reply should have been; its value may be anything, so it is not repeated.

    The error has no path, as callers would look for it in their own request.
    """
    raise EngineError(f"the engine's reply cannot be used: {name} is not {wanted}")


def text(place: dict[str, Any], name: str) -> str:
    """A text, "" where there is none."""
    value = place.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        refuse(name, "a string")
    return value


def name(place: dict[str, Any], name: str) -> str:
    """A text as short as names are, without U+0000 and what Unicode lacks."""
    value = text(place, name)
    if len(value) > MAX_NAME or "\0" in value:
        refuse(name, f"a name of at most {MAX_NAME} characters")
    return value


def whole(place: dict[str, Any], name: str, high: int) -> int | None:
    """A whole number from 0 to `high`."""
    value = place.get(name)
    if value is not None and (type(value) is not int or not 0 <= value <= high):
        refuse(name, f"a whole number from 0 to {high}")
    return value


def mapping(place: dict[str, Any], name: str) -> dict[str, Any]:
    """An object, empty where there is none."""
    value = place.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        refuse(name, "an object")
    return value


def objects(place: dict[str, Any], name: str) -> list[dict[str, Any]] | None:
    """A list of objects."""
    value = place.get(name)
    if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        refuse(name, "a list of objects")
    return value


def numbers(values: list[Any], name: str) -> None:
    """Refuse a list that holds anything but numbers and null."""
    if not set(map(type, values)) <= {float, int, type(None)}:
        refuse(name, "a list of numbers and null")


def ids(place: dict[str, Any], name: str) -> list[int] | None:
    """Token ids. Checked by whole-list operations, as prompts hold many."""
    value = place.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or (
        value and (set(map(type, value)) != {int} or min(value) < 0 or max(value) > MAX_ID)
    ):
        refuse(name, f"a list of token ids from 0 to {MAX_ID}")
    return value


def usage(place: dict[str, Any]) -> Usage | None:
    """Token counts; one that is missing is 0."""
    if place.get("usage") is None:
        return None
    found = mapping(place, "usage")
    counts = [whole(found, name, MAX_COUNT) or 0 for name in ("prompt_tokens", "completion_tokens")]
    return Usage(*counts)


def summed(counts: Iterable[int]) -> int:
    """A sum of token counts, which is one too."""
    total = sum(counts)
    if total > MAX_COUNT:
        refuse("usage", f"counts of tokens up to {MAX_COUNT}")
    return total


def plain(value: Any, name: str) -> None:
    """Refuse free JSON that could not be stored: that nests without end, or has a number that JSON has not."""
    try:
        check_depth(value, name)
    except InvalidRequestError:
        refuse(name, "JSON of a sensible depth with finite numbers")


def version_spans(place: dict[str, Any]) -> tuple[VersionSpan, ...] | None:
    """Pairs of a start and a version, the starts ascending; None where there are none."""
    value = place.get("version_spans")
    if value is None:
        return None
    wanted = "a list of pairs [start, version] in order"
    if not isinstance(value, list):
        refuse("version_spans", wanted)
    before = -1
    for item in value:
        if not (isinstance(item, list) and len(item) == 2 and all(type(number) is int for number in item)):
            refuse("version_spans", wanted)
        start, version = item
        if not before < start <= MAX_COUNT or not 0 <= version <= MAX_VERSION:
            refuse("version_spans", wanted)
        before = start
    return tuple(VersionSpan(start, version) for start, version in value) or None


def stop_reason(place: dict[str, Any]) -> int | str | None:
    """What ended the reply: a token id, a text, or nothing that is known."""
    value = place.get("stop_reason")
    if value is not None and type(value) not in (int, str):
        refuse("stop_reason", "a string or a token id")
    found: int | str | None = value
    return found
