"""What documents of ATIF say beside the fields that are read: `extra` objects, and fields that the format has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.formats.atif_extension import KEY

_STEP = frozenset(
    (
        "step_id", "timestamp", "source", "model_name", "reasoning_effort", "message", "reasoning_content",
        "tool_calls", "observation", "metrics", "is_copied_context", "llm_call_count", "extra",
    )
)  # fmt: skip
_METRICS = frozenset(
    (
        "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids", "completion_token_ids",
        "logprobs", "extra",
    )
)  # fmt: skip
_OBSERVATION = frozenset(("results",))
_CALL = frozenset(("tool_call_id", "function_name", "arguments"))
_RESULT = frozenset(("source_call_id", "content", "subagent_trajectory_ref"))
_REFERENCE = frozenset(("trajectory_path", "trajectory_id", "session_id"))
_DOCUMENT = frozenset(
    (
        "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics", "extra",
        "continued_trajectory_ref", "subagent_trajectories",
    )
)  # fmt: skip
_AGENT = frozenset(("name", "version", "model_name", "tool_definitions", "extra"))
_NOTHING: tuple[Any, ...] = (None, "", [], {})


def of_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """By their places in the step; the step's own `extra` is read elsewhere."""
    found: dict[str, Any] = {}
    if not _STEP.issuperset(step):
        found |= _rest(step, _STEP, "")
    found |= _rest(step.get("metrics"), _METRICS, "metrics.")
    for number, call in enumerate(_list(step.get("tool_calls"))):
        if not _is_plain(call, _CALL):
            found |= _rest(call, _CALL, f"tool_calls[{number}].")
    observation = step.get("observation")
    found |= _rest(observation, _OBSERVATION, "observation.")
    results = observation.get("results") if isinstance(observation, dict) else None
    for number, result in enumerate(_list(results)):
        if _is_plain(result, _RESULT) and "subagent_trajectory_ref" not in result:
            continue
        place = f"observation.results[{number}]."
        found |= _rest(result, _RESULT, place)
        named = result.get("subagent_trajectory_ref") if isinstance(result, dict) else None
        for at, each in enumerate(_list(named) if isinstance(named, list) else [named]):
            found |= _rest(each, _REFERENCE, f"{place}subagent_trajectory_ref[{at}].")
    return found


def _is_plain(record: Any, known: frozenset[str]) -> bool:
    """Whether it is an object with these fields and no others."""
    return record.__class__ is dict and known.issuperset(record)


def of_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """By their places in the document; its steps' are their own."""
    return _rest(document, _DOCUMENT, "") | _rest(document.get("agent"), _AGENT, "agent.")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rest(record: Any, known: frozenset[str], place: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(record, dict) or known.issuperset(record):
        return found
    for key, value in record.items():
        if key == "extra" and isinstance(value, dict):
            value = {name: each for name, each in value.items() if name != KEY}
        if key not in known and value not in _NOTHING:
            found[f"{place}{key}"] = value
    return found
