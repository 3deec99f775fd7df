"""Values that may be of any type, as what they are wanted as; None where they are not that."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

from agentworld.errors import InvalidRequestError
from agentworld.ingest.decoding import decode
from agentworld.ingest.entry import BadDocument
from agentworld.records import MAX_DEPTH, Sampling, Usage, check_depth, exact_json

MAX_NUMBER = 2**31 - 1
_MAX_METADATA = 16 * 1024
_NOT_IN_NAMES = re.compile("[\x00\ud800-\udfff]")
_DEPTH = MAX_DEPTH - 10  # so that it still fits where it is put into something


def text(value: Any) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def named(value: str | None) -> str | None:
    """A name as a pool takes it: at most 256 characters, and U+FFFD for those that no name can hold."""
    return _NOT_IN_NAMES.sub("\ufffd", value)[:256] if value else None


def table(value: Any) -> dict[str, Any]:
    """An object, empty where the value is none."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list, empty where the value is none."""
    return value if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number, also as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def count(value: Any) -> int | None:
    """A whole number from 0 that a pool can hold, also as text."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= MAX_NUMBER else None


def unpacked(value: Any) -> Any:
    """JSON text as its value where it is an object or a list; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        found, _ = decode(value.encode("utf-8", "surrogatepass"), "$", _DEPTH)
    except BadDocument:
        return value
    return found


def written(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return str(value)


def seconds(value: Any) -> float:
    """A time as seconds since the epoch: ISO 8601, or a number of seconds, milliseconds, microseconds or nanoseconds
    (told apart by their size); 0.0 where it is none.
    """
    if isinstance(value, str) and not value.strip().lstrip("-").replace(".", "", 1).isdigit():
        try:
            found = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
            return max((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp(), 0.0)
        except (ValueError, OverflowError):
            return 0.0
    size = number(value)
    if size is None or size <= 0 or size > 1e20:
        return 0.0
    for least, divisor in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if size >= least:
            return size / divisor
    return size


def usage_of(prompt: Any, completion: Any) -> Usage | None:
    """Token counts, where one of them is there."""
    read, said = count(prompt), count(completion)
    return None if read is None and said is None else Usage(read or 0, said or 0)


def sampling_of(given: Any) -> Sampling | None:
    """Sampling parameters out of an object that may hold anything; what cannot be read is left out."""
    if not isinstance(given, dict):
        return None

    def first(*names: str) -> Any:
        return next((given[name] for name in names if given.get(name) is not None), None)

    def within(low: float, high: float, *names: str) -> float | None:
        found = number(first(*names))
        return found if found is not None and low <= found <= high else None

    stop = first("stop", "stop_sequences", "stopSequences")
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list | tuple) else []
    choice = first("tool_choice", "toolChoice")
    parallel = first("parallel_tool_calls", "parallelToolCalls")
    found = Sampling(
        temperature=within(0, 100, "temperature"),
        top_p=within(0, 1, "top_p", "topP"),
        top_k=count(first("top_k", "topK")),
        max_tokens=count(
            first("max_completion_tokens", "max_tokens", "max_output_tokens", "maxTokens", "maxOutputTokens")
        ),
        stop=tuple(each for each in stops if isinstance(each, str) and each),
        seed=count(first("seed")),
        presence_penalty=within(-2, 2, "presence_penalty", "presencePenalty"),
        frequency_penalty=within(-2, 2, "frequency_penalty", "frequencyPenalty"),
        tool_choice=choice if isinstance(choice, str | dict) else None,
        parallel_tool_calls=parallel if isinstance(parallel, bool) else None,
    )
    return found if found != Sampling() else None


def bounded(values: dict[str, Any], most: int = _MAX_METADATA) -> dict[str, Any]:
    """What of some metadata can be kept: values that are JSON, as long as they are not larger than `most` together."""
    kept: dict[str, Any] = {}
    room = most
    for name, value in values.items():
        if value is None or value == "" or value == {} or value == []:
            continue
        try:
            check_depth([[[value]]], name)
            size = len(exact_json.encode(value)) + len(name)
        except (InvalidRequestError, TypeError, ValueError, RecursionError):
            continue
        if size <= room:
            kept[name] = value
            room -= size
    return kept
