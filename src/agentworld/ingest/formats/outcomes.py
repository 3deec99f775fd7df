"""How a run ended and how good it was, in the words of many formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.formats.noted import Values, as_finite
from agentworld.ingest.run import Run, RunFeedback, RunReward
from agentworld.records.trajectory import TerminalStatus

_CUT = (
    "limit",
    "exceed",
    "cost",
    "context",
    "timeout",
    "timed_out",
    "time_out",
    "execution_time",
    "max_steps",
    "max_turns",
    "max_iteration",
    "truncat",
    "length",
    "too_many",
)
_FAILED = (
    "error",
    "fail",
    "abort",
    "crash",
    "exception",
    "environment",
    "forfeit",
    "format",
    "interrupt",
    "kill",
    "traceback",
)


def status_of(ended: Any) -> TerminalStatus:
    """The status that an exit status or a reason of termination says; a run without one was left."""
    if not isinstance(ended, str) or not ended.strip():
        return "abandoned"
    said = ended.lower().replace(" ", "_")
    if any(word in said for word in _CUT):
        return "truncated"
    if any(word in said for word in _FAILED):
        return "failed"
    return "finished"


def put_value(run: Run, name: str, value: Any, values: Values, place: str, details: Any = None) -> bool:
    """Put a number or truth value as a reward, a text as a label; whether it was one of these."""
    if isinstance(value, bool):
        value = 1.0 if value else 0.0
    number = as_finite(value)
    if number is not None:
        kept = details if isinstance(details, dict) else None
        run.rewards.append(RunReward(name=values.short(name, place), value=number, details=kept or None))
        return True
    if isinstance(value, str) and value:
        run.feedback.append(RunFeedback(kind="label", name=values.short(name, place), value=value[:1000]))
        return True
    if value is not None:
        values.lost(place, "it is neither a finite number nor a text, and no reward")
    return False


def put_label(run: Run, record: Mapping[str, Any], key: str, values: Values, place: str) -> None:
    """Put a text or truth value as a label of the same name."""
    value = record.get(key)
    if isinstance(value, bool):
        run.feedback.append(RunFeedback(kind="label", name=key, value=value))
    elif isinstance(value, str) and value:
        run.feedback.append(RunFeedback(kind="label", name=key, value=value[:1000]))
    elif value not in (None, ""):
        values.lost(f"{place}.{key}", "it must be a text")


def put_metadata(run: Run, record: Mapping[str, Any], leave: frozenset[str], values: Values, place: str) -> None:
    """Put what else a record has into the run's metadata, each value bounded by itself."""
    for key, value in record.items():
        if key in leave or value in (None, "", [], {}):
            continue
        kept = values.bounded(value, f"{place}.{key}")
        if kept is not None:
            run.metadata[key] = kept
