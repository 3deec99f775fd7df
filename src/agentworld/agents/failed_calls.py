"""What is told of the calls of a run that failed, be it that the gateway refused them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentworld.records import Exchange


def failed_of(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """The calls that ended with an error."""
    return [exchange for exchange in exchanges if exchange.error is not None]


def said_by(error: dict[str, Any]) -> str:
    """The message of a recorded error, with its hint."""
    return ". ".join(str(error[name]).rstrip(".") for name in ("message", "hint") if error.get(name))


def told(failures: list[Exchange], step_count: int) -> str:
    """How many calls failed, whether another got a reply, and the last one's error. There must be one."""
    error = failures[-1].error or {}
    calls = f"{len(failures)} call{'' if len(failures) == 1 else 's'}"
    none = "" if step_count else ", and none got a reply"
    return f"{calls} failed{none}. The last: {error.get('status', '')} {said_by(error)}"
