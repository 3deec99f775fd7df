"""One sampled reply to one call, and the exchange that it came from."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.records.message import Message, Tool

TokenSource = Literal["engine", "token-in", "submitted", "derived", "none"]
ForkReason = Literal["subagent", "compaction", "history_rewritten", "template", "tools_changed", "retry", "parallel"]
Readiness = Literal["open", "complete", "ready", "excluded"]
# raw: log-softmax of the unmodified logits. temperature: after temperature only. processed: of the distribution that
# was sampled from, after temperature, penalties and truncation.
LogprobSpace = Literal["raw", "temperature", "processed"]


DEFAULT_RUN = "default"


class Policy(msgspec.Struct, frozen=True):
    """Which weights spoke: `version` counts up within one `run`; going back to older weights starts a new run."""

    model: str
    run: str = DEFAULT_RUN
    version: int = 0


class VersionSpan(msgspec.Struct, frozen=True):
    """From reply token `start` on (0-based), the weights had `version`."""

    start: int
    version: int


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sampling parameters that were in force; every field that is set was sent to the engine."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    n: int = 1
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts as the engine reported them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Step(msgspec.Struct, kw_only=True):
    """State, action, reward and their metadata for one sampled reply; n choices are n steps with one `exchange_id`.

    `prompt_ids`, `response_ids`: vocabulary ids. `response_mask`: 1 where the policy sampled the token, 0 where it was
    injected, same length as `response_ids` (absent means all 1). `response_logprobs`: natural logarithms in
    `logprob_space`, same length, null where the engine gave no finite value. `created_at`: seconds since the epoch.
    """

    step_id: str
    trajectory_id: str
    exchange_id: str | None = None
    choice_index: int = 0
    group_id: str | None = None
    channel: str = "train"
    step_index: int | None = None
    parent_step_id: str | None = None
    supersedes: str | None = None
    fork_reason: ForkReason | None = None
    agent: str | None = None
    model: str | None = None
    requested_model: str | None = None
    policy: Policy | None = None
    version_spans: tuple[VersionSpan, ...] = ()
    dialect: str | None = None
    token_source: TokenSource = "none"
    vocabulary: str | None = None
    prompt_ids: list[int] | None = None
    response_ids: list[int] | None = None
    response_mask: list[int] | None = None
    response_logprobs: list[float | None] | None = None
    logprob_space: LogprobSpace | None = None
    prompt_messages: list[Message] | None = None
    tools: list[Tool] | None = None
    response_message: Message | None = None
    prompt_length: int | None = None
    response_length: int | None = None
    sampling: Sampling | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    rewards: dict[str, float] = {}
    reward: float | None = None
    labels: dict[str, Any] = {}
    annotations: list[str] = []
    readiness: Readiness = "open"
    excluded_reason: str | None = None
    late: bool = False
    is_last: bool = False
    created_at: float = 0.0
    latency_ms: float | None = None
    metadata: dict[str, Any] = {}


MarkKind = Literal["answered", "failed", "reply"]


class Mark(msgspec.Struct, frozen=True):
    """How a call that names no trajectory can be known again: by its body, or by the conversation up to its reply.

    `digest`: 32 hex digits. `said`: of a body, how the call ended; `reply` for a conversation.
    """

    digest: str
    said: MarkKind


class Exchange(msgspec.Struct, kw_only=True):
    """One call as the gateway sees it: canonical request, identity and, once it ended, its choices.

    `choices` are steps that still lack what the forests decide (parent, fork reason, index); `error` is set where the
    call failed, and then there are no choices. `marks` are kept beside it while the trajectory is open. `only_group`,
    `only_channel`: where the call named or may use no other, so that its steps are refused where the trajectory is
    there in another one; not stored.
    """

    exchange_id: str
    trajectory_id: str
    dialect: str
    model: str
    requested_model: str
    messages: list[Message]
    tools: list[Tool] = []
    sampling: Sampling = Sampling()
    group_id: str | None = None
    channel: str = "train"
    agent: str | None = None
    policy: Policy | None = None
    retry_count: int = 0
    body_digest: str = ""
    created_at: float = 0.0
    latency_ms: float | None = None
    choices: list[Step] = []
    marks: list[Mark] = []
    only_group: str | None = None
    only_channel: str | None = None
    error: dict[str, Any] | None = None
