"""One line of `agentworld doctor`."""

from __future__ import annotations

from typing import NamedTuple

from agentworld.errors import AgentWorldError, EngineError


class Finding(NamedTuple):
    """`state`: ok, info (nothing is wrong, something is absent) or bad. What is bad always has a `fix`."""

    state: str
    subject: str
    result: str
    fix: str = ""


def bad(subject: str, error: AgentWorldError) -> Finding:
    """An error as a finding; where it does not say what to do, the place to look at."""
    if error.hint:
        fix = error.hint
    elif isinstance(error, EngineError):
        fix = "look into the engine's log, or call it by hand"
    elif error.path:
        fix = f"correct {error.path}"
    else:
        fix = "correct what the message names"
    return Finding("bad", subject, error.message, fix)
