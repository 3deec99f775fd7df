"""What log lines say of the call that they were written for, wherever they come from."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

_about: ContextVar[Mapping[str, str]] = ContextVar("agentworld_call")


def about(**facts: str) -> None:
    """From here on lines of this task have these facts, and no others."""
    _about.set(facts)


def add_call(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog: the line with the facts, unless it says them itself."""
    for name, value in _about.get({}).items():
        line.setdefault(name, value)
    return line
