"""What a step says beside arrays and messages, as canonical JSON; the step's digest is over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.pool.plain_values import plain_json
from agentworld.records import Step, Tool, exact_json

_decoder = msgspec.json.Decoder(Step)
_KNOWN_TOOLS = 64
_known_tools: set[bytes] = set()


class _Said(msgspec.Struct, gc=False):
    """All that a caller says of a step beside arrays and messages, as the step's digest is over it.

    What the store sets and what has its own digest stands as it does in a step without it. Pools hold digests over
    this, so it stays as it is when a step gets fields that the store sets.
    """

    step_id: str
    trajectory_id: str
    exchange_id: str | None
    choice_index: int
    group_id: str | None
    channel: str
    step_index: None
    parent_step_id: str | None
    supersedes: str | None
    fork_reason: str | None
    agent: str | None
    model: str | None
    requested_model: str | None
    policy: Any
    version_spans: Any
    dialect: str | None
    token_source: str
    vocabulary: str | None
    prompt_ids: None
    response_ids: None
    response_mask: None
    response_logprobs: None
    logprob_space: str | None
    prompt_messages: None
    tools: None
    response_message: None
    prompt_length: int | None
    response_length: int | None
    sampling: Any
    finish_reason: str | None
    usage: Any
    rewards: Any
    reward: float | None
    labels: Any
    readiness: str
    excluded_reason: str | None
    late: bool
    is_last: bool
    created_at: float
    latency_ms: float | None
    metadata: Any


def said(step: Step, policy: Any, sampling: Any) -> msgspec.Struct:
    """All that is neither array nor message, with these records or their JSON."""
    return _Said(
        step.step_id,
        step.trajectory_id,
        step.exchange_id,
        step.choice_index,
        step.group_id,
        step.channel,
        None,
        step.parent_step_id,
        step.supersedes,
        step.fork_reason,
        step.agent,
        step.model,
        step.requested_model,
        policy,
        step.version_spans,
        step.dialect,
        step.token_source,
        step.vocabulary,
        None,
        None,
        None,
        None,
        step.logprob_space,
        None,
        None,
        None,
        step.prompt_length,
        step.response_length,
        sampling,
        step.finish_reason,
        step.usage,
        step.rewards,
        step.reward,
        step.labels,
        "open",
        step.excluded_reason,
        False,
        False,
        step.created_at,
        step.latency_ms,
        step.metadata,
    )


def said_text(step: Step) -> bytes:
    """The canonical JSON of all that is neither array nor message; raises where something is no JSON."""
    return exact_json.encode(said(step, step.policy, step.sampling))


def checked_text(step: Step) -> bytes:
    """`said_text` of a step that may have anything in its fields; raises where it is not of the types of a step."""
    text = said_text(step)
    # Structs that Python code built are not checked by themselves.
    if exact_json.has_escapes(text):
        exact_json.decode(text, Step)
    else:
        _decoder.decode(text)
    return text


def check_tools(tools: Sequence[Any]) -> None:
    """Depths and numbers of tools; those of the last steps are known, so the walk over them is rare."""
    try:
        text = exact_json.encode(tools)
    except (RecursionError, TypeError):
        text = b""
    if text in _known_tools:
        return
    plain_json(tools, "tools")
    exact_json.decode(text, list[Tool])
    if b"null" not in text:  # NaN would be spelled so too.
        if len(_known_tools) >= _KNOWN_TOOLS:
            _known_tools.clear()
        _known_tools.add(text)
