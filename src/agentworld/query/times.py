"""Moments as they are written in expressions: dates, times with a zone, and durations."""

from __future__ import annotations

import datetime
import math
import re

from agentworld.query.lexer import Token, fault

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})?"
)
_EXAMPLES = "Write '2026-01-31', '2026-01-31T10:00:00Z', now - 2h or seconds since the epoch"


def read_moment(token: Token, exact: bool) -> float:
    """Seconds since the epoch of a text in quotes.

    QueryError where it is no date or time, where a time has no zone, and where a whole day would be compared for
    equality (`exact`).
    """
    text = token.value
    if _DATE.fullmatch(text):
        if exact:
            hint = f"Give a range: >= '{text}' and < the day after, or a time such as '{text}T00:00:00Z'"
            raise fault(f"{text!r} is a day, not one moment,", token.position, hint)
        text += "T00:00:00Z"
    found = _TIME.fullmatch(text)
    if found is None:
        raise fault(f"{text!r} is no date or time", token.position, _EXAMPLES)
    if found["zone"] is None:
        raise fault(f"{text!r} has no zone", token.position, f"Write '{text}Z' for UTC, or an offset such as +02:00")
    try:
        return (datetime.datetime.fromisoformat(text) - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        raise fault(f"{text!r} is no date or time", token.position, _EXAMPLES) from None


def read_duration(token: Token) -> float:
    """Seconds of a duration such as 2h."""
    seconds = float(token.text[:-1]) * UNITS[token.text[-1]]
    if not math.isfinite(seconds):
        raise fault(f"{token.text} is too long a time", token.position)
    return seconds


def written_moment(seconds: float) -> str | None:
    """The time in quotes that reads as `seconds`, None where there is none."""
    try:
        moment = _EPOCH + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return None
    if (moment - _EPOCH).total_seconds() != seconds:
        return None
    return f"'{moment.replace(tzinfo=None).isoformat()}Z'"


def written_duration(seconds: float) -> str:
    """The duration that reads as `seconds`, which are not negative."""
    for unit in "wdhm":
        count = seconds / UNITS[unit]
        if count >= 1 and count.is_integer() and count * UNITS[unit] == seconds:
            return f"{int(count)}{unit}"
    return f"{int(seconds)}s" if seconds.is_integer() else f"{_decimal(seconds)}s"


def _decimal(number: float) -> str:
    # Durations are written without an exponent.
    text = repr(number)
    return text if "e" not in text else f"{number:.400f}".rstrip("0")
