"""What dialects, engine drivers and capture say to each other: one request, the pieces of a reply, the whole reply."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.forest import TokenArray
from agentworld.records import Message, Sampling, Tool, Usage, VersionSpan

T = TypeVar("T")
Ids = list[int] | TokenArray


class KeptTools(tuple[Tool, ...]):
    """Tools that call after call sends: the same record each time. `digest`: once it is known, so that it is worked out
    once.
    """

    digest: bytes | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call, free of the API that it came in by.

    `model`: the name that the caller used, "" for none. `logprobs`: whether the caller wants log-probabilities back,
    `top_logprobs`: how many alternatives with each (the engine is asked for log-probabilities either way).
    `template`: extra variables for the chat template. `fit_context`: `max_tokens` is the most that may come, and what
    the context leaves is enough where that is less. `continue_final`: the last message is the beginning of the reply,
    which the model writes on. `prompt`: of a text completion, text or ids that go to the engine as they are; no chat
    template applies then, and `messages` only says what is on record: the text, or nothing. `effort`: how much the
    model shall think, a hint that only APIs with a field for it get. `hide_reasoning`: thinking goes on record and not
    to the caller. `echo`: what the dialect repeats in its reply. `notes`: goes on record as metadata of the step.
    `raw`: the body as it came, and `forwarded`: the headers that go with it, for engines that speak the caller's own
    API. `media`: the bytes of the messages' media by digest.
    """

    dialect: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    sampling: Sampling = Sampling()
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    return_token_ids: bool = False
    template: dict[str, Any] = {}
    fit_context: bool = False
    continue_final: bool = False
    effort: str | None = None
    hide_reasoning: bool = False
    prompt: str | tuple[int, ...] | None = None
    echo: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    raw: dict[str, Any] | None = None
    forwarded: dict[str, str] = {}
    media: dict[str, bytes] = {}


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of the tool call at `index` of its reply; id and name come with the first piece, arguments add up."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Delta(msgspec.Struct, kw_only=True):
    """A piece of the reply at choice `index`; a plain reply is one piece a choice.

    `ids` and `logprobs` are what was sampled in this piece (logprobs: natural logarithms, None where the engine gave
    no finite value); `entries` are OpenAI log-probability objects, kept only where the caller asked for them.
    `prompt_ids` comes once, `usage`, `version_spans` and `logprobs_mode` at the end; they hold for the whole call.
    `fault`: why the reply cannot be trusted token for token. `metadata` goes on record with the choice. `signature`
    ends the thinking so far, `redacted` is thinking that only its service can read, `blocks` is the whole content as
    an Anthropic service sent it: for callers of that API. `more`: another piece came with this one and follows at once,
    so that this one can wait for it.
    """

    index: int = 0
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    entries: list[dict[str, Any]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_ids: list[int] | None = None
    usage: Usage | None = None
    policy_version: int | None = None
    policy_run: str | None = None
    version_spans: tuple[VersionSpan, ...] | None = None
    logprobs_mode: str | None = None
    fault: str | None = None
    metadata: dict[str, Any] | None = None
    signature: str | None = None
    redacted: str | None = None
    blocks: list[dict[str, Any]] | None = None
    more: bool = False


RUNS = "runs"
"""The name in a step's metadata under which stand the runs of its reply."""


class Run(NamedTuple):
    """A stretch of a reply that is text or thinking: `kind` (text or reasoning), its characters, and how many
    log-probabilities had come before what followed it.
    """

    kind: str
    length: int
    logprobs: int


class Choice(msgspec.Struct, kw_only=True):
    """One whole sampled reply. `ids` and `logprobs` are None where the engine gave none, and lists or arrays, see
    `listed`; `blocks` as in Delta.

    `runs`: in which order text and thinking came, where that is not all thinking before all text.
    """

    index: int
    message: Message
    finish_reason: str
    ids: Ids | None = None
    logprobs: list[float | None] | npt.NDArray[np.float64] | None = None
    entries: list[dict[str, Any]] | None = None
    version_spans: tuple[VersionSpan, ...] = ()
    metadata: dict[str, Any] = {}
    blocks: list[dict[str, Any]] | None = None
    runs: tuple[Run, ...] = ()


class Reply(msgspec.Struct, kw_only=True):
    """All choices of one call. `created`: seconds since the epoch."""

    reply_id: str
    model: str
    created: int
    choices: list[Choice]
    prompt_ids: Ids | None = None
    usage: Usage | None = None


def listed(values: list[T] | npt.NDArray[Any] | None) -> list[T] | None:
    """Ids or log-probabilities as JSON has them."""
    if isinstance(values, np.ndarray):
        out: list[T] = values.tolist()
        return out
    return values
