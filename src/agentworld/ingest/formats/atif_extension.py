"""What ATIF has no field for, under the key `agentworld` of its `extra` objects: written by the export, read here."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.ingest.formats.noted import Values
from agentworld.records import Policy, Sampling, Step, VersionSpan
from agentworld.records.message import Tool
from agentworld.records.step import ForkReason, LogprobSpace, TokenSource
from agentworld.records.trajectory import TerminalStatus

KEY = "agentworld"
_NULLABLE = frozenset(("agent", "model", "prompt_messages", "response_message", "prompt_ids", "response_ids", "tools"))


class StepFacts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Fields of a Step beside its messages, ids, log-probabilities and rewards; defaults say nothing.

    `response_logprobs`: only where some are null, which the format has not. `absent`: fields that are null although the
    document says something for them.
    """

    agent: str | None = None
    model: str | None = None
    requested_model: str | None = None
    policy: Policy | None = None
    version_spans: tuple[VersionSpan, ...] = ()
    dialect: str | None = None
    token_source: TokenSource | None = None
    vocabulary: str | None = None
    response_mask: list[int] | None = None
    response_logprobs: list[float | None] | None = None
    logprob_space: LogprobSpace | None = None
    tools: list[Tool] | None = None
    sampling: Sampling | None = None
    finish_reason: str | None = None
    created_at: float | None = None
    latency_ms: float | None = None
    metadata: dict[str, Any] = {}
    absent: tuple[str, ...] = ()

    @classmethod
    def of(cls, step: Step) -> StepFacts:
        """All that is known of a step."""
        return cls(**{name: getattr(step, name) for name in cls.__struct_fields__ if name != "absent"})

    @staticmethod
    def read(value: Any, values: Values, place: str) -> dict[str, Any]:
        """The fields that are said, by name; none, with a note, where something about them is wrong."""
        if value is None:
            return {}
        try:
            facts = msgspec.convert(value, StepFacts)
        except (msgspec.ValidationError, TypeError) as error:
            values.lost(place, f"it is no step of AgentWorld: {error}")
            return {}
        default = StepFacts()
        found = {name: getattr(facts, name) for name in StepFacts.__struct_fields__ if name != "absent"}
        said = {name: value for name, value in found.items() if value != getattr(default, name)}
        return said | {name: None for name in facts.absent if name in _NULLABLE}


class BranchFacts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Of a document: the step, of which document, that it goes on from, and why it is one of its own. `document`: a
    `trajectory_id`.
    """

    document: str | None = None
    step_id: int | None = None
    fork_reason: ForkReason | None = None

    @staticmethod
    def read(value: Any) -> BranchFacts | None:
        """None where it is said nowhere, or wrong."""
        try:
            return msgspec.convert(value, BranchFacts) if value is not None else None
        except (msgspec.ValidationError, TypeError):
            return None


class RunFacts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Of the whole: how it ended, its task, what it is of, and what was said of it. `feedback`: fields of RunFeedback,
    on a step of a document where it names one.
    """

    status: TerminalStatus = "finished"
    task: dict[str, Any] | None = None
    group_id: str | None = None
    rollout_index: int | None = None
    agent: str | None = None
    user: str | None = None
    metadata: dict[str, Any] = {}
    feedback: list[dict[str, Any]] = []
    created_at: float = 0.0
    completed_at: float = 0.0

    @staticmethod
    def read(value: Any, values: Values, place: str) -> RunFacts:
        """What is said; nothing, with a note, where something about it is wrong."""
        try:
            return msgspec.convert(value, RunFacts) if value is not None else RunFacts()
        except (msgspec.ValidationError, TypeError) as error:
            values.lost(place, f"it is no trajectory of AgentWorld: {error}")
            return RunFacts()
