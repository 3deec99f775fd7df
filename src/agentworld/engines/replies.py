"""Replies of the completion routes in vLLM's shapes: bodies, stream chunks, log-probabilities, usage. Pure."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.engines.chat_format import ChatFormat, ParsedReply
from agentworld.engines.detokenize import StopStrings, TextStream
from agentworld.engines.surface import GenerationRequest
from agentworld.engines.tokenizer import TokenizerAdapter

FLOOR = -9999.0
"""What vLLM writes for a log-probability of minus infinity, which JSON cannot hold."""

Tops = list[tuple[int, float]]


class Tokens(msgspec.Struct, kw_only=True):
    """New tokens of one choice, as an engine hands them out.

    `logprobs` has one value an id, or is empty where none were asked for; `tops` likewise, each a list of
    (id, log-probability) in falling order. `finish_reason` is set on the last one: stop, length or abort.
    """

    index: int
    ids: list[int]
    logprobs: list[float] = msgspec.field(default_factory=list)
    tops: list[Tops] = msgspec.field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    """The stop string or the requested stop token that ended the reply; None for an end of turn."""
    ends_with_stop_token: bool = False
    version: int | None = None
    """Policy version that sampled the first of these ids."""
    run: str | None = None
    """The run of that version, which is that of the whole call."""
    version_spans: list[list[int]] = msgspec.field(default_factory=list)
    """[[first token, version], ...] of the reply so far; on the last one at least."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What every body and chunk of one call repeats."""

    request: GenerationRequest
    id: str
    created: int
    model: str
    logprobs_mode: str | None = None

    @staticmethod
    def make(request: GenerationRequest, request_id: str | None, model: str, mode: str | None) -> Envelope:
        """Take the caller's request id, or make one."""
        prefix = "chatcmpl" if request.kind == "chat" else "cmpl"
        return Envelope(
            request=request,
            id=request.request_id or request_id or f"{prefix}-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=model,
            logprobs_mode=mode if request.logprobs is not None else None,
        )

    def frame(self, kind: str, choices: list[dict[str, Any]], spoke: Sequence[Choice]) -> dict[str, Any]:
        """A body or chunk around its choices, with the policy that sampled the first token of those who `spoke`; its
        version only where they agree.
        """
        out: dict[str, Any] = {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
        versions = {choice.version for choice in spoke if choice.version is not None}
        if len(versions) == 1:
            out["policy_version"] = versions.pop()
        if spoke and (runs := [choice.run for choice in spoke if choice.version is not None]):
            out["policy_run"] = runs[0]
        if self.logprobs_mode is not None:
            out["logprobs_mode"] = self.logprobs_mode
        return out


class Choice:
    """One reply while it grows: its ids, log-probabilities and text."""

    def __init__(self, index: int, prompt_ids: Sequence[int], request: GenerationRequest, chat: ChatFormat) -> None:
        self.index = index
        self.prompt_ids = list(prompt_ids)
        self.request = request
        self.chat = chat
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.tops: list[Tops] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.several = request.n > 1 or len(request.prompts) > 1
        self.version: int | None = None
        self.run: str | None = None
        self.version_spans: list[list[int]] = []
        self._visible = 0
        self._stream = TextStream(chat.tokenizer, request.skip_special_tokens)
        self._stops = StopStrings(request.sampling.stop, request.include_stop)

    def begin(self, tokens: Tokens) -> None:
        """Take the policy of the first tokens; later ones change nothing."""
        if self.version is None:
            self.version, self.run = tokens.version, tokens.run

    def feed(self, tokens: Tokens) -> None:
        """Take new tokens."""
        self.begin(tokens)
        if tokens.version_spans:
            self.version_spans = [list(span) for span in tokens.version_spans]
        elif tokens.ids and tokens.version is not None and tokens.version != self._latest:
            self.version_spans.append([len(self.ids), tokens.version])
        self.ids.extend(tokens.ids)
        self.logprobs.extend(tokens.logprobs)
        self.tops.extend(tokens.tops)
        hide = tokens.ends_with_stop_token and not self.request.include_stop
        shown = tokens.ids[:-1] if hide else tokens.ids
        self._visible += len(shown)
        self._stops.feed(self._stream.feed(shown))
        if tokens.finish_reason is not None:
            self._stops.feed(self._stream.finish())
            self.finish_reason = tokens.finish_reason
            self.stop_reason = tokens.stop_reason

    @property
    def _latest(self) -> int | None:
        return self.version_spans[-1][1] if self.version_spans else None

    @property
    def text(self) -> str:
        """The text so far, cut at a stop string."""
        return self._stops.text

    @property
    def safe_length(self) -> int:
        """How much of `text` may be shown while more is coming."""
        return len(self.text) if self.finish_reason is not None else self._stops.safe

    def parse(self) -> ParsedReply:
        """The finished reply as a message."""
        parsed = self.chat.parse(
            self.ids[: self._visible],
            prompt_ids=self.prompt_ids,
            tools=self.request.tools,
            parallel=self.request.parallel_tool_calls,
            skip_special_tokens=self.request.skip_special_tokens,
        )
        if parsed.reasoning is None and not parsed.tool_calls:
            return ParsedReply(self.text)
        stop = self._stops.found
        if stop is not None and stop in parsed.content:
            kept = parsed.content[: parsed.content.index(stop) + (len(stop) if self.request.include_stop else 0)]
            return ParsedReply(kept, parsed.reasoning, parsed.tool_calls)
        return parsed

    def policy(self) -> dict[str, Any]:
        """`version_spans` of the finished reply, only where the weights changed inside it, or where other replies of
        the call may be of other weights.
        """
        if self.several and not self.version_spans and self.version is not None:
            return {"version_spans": [[0, self.version]]}
        return {"version_spans": self.version_spans} if len(self.version_spans) > (not self.several) else {}


def usage(prompt_tokens: int, completion_tokens: int, cached: int = 0) -> dict[str, Any]:
    """The usage block."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def finite(logprob: float) -> float:
    """A log-probability as JSON can hold it."""
    return logprob if math.isfinite(logprob) else FLOOR


def _token_text(tokenizer: TokenizerAdapter, token_id: int, as_ids: bool) -> str:
    if as_ids:
        return f"token_id:{token_id}"
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def chat_logprobs(
    choice: Choice, ids: Sequence[int], logprobs: Sequence[float], tops: Sequence[Tops]
) -> dict[str, Any] | None:
    """`logprobs` of a chat choice or chunk for these ids; None where not asked for."""
    if choice.request.logprobs is None:
        return None
    tokenizer, as_ids = choice.chat.tokenizer, choice.request.tokens_as_ids

    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        return {
            "token": _token_text(tokenizer, token_id, as_ids),
            "logprob": finite(logprob),
            "bytes": list(tokenizer.token_bytes(token_id)),
        }

    content = []
    for position, (token_id, logprob) in enumerate(zip(ids, logprobs, strict=False)):
        item = entry(token_id, logprob)
        ranked = tops[position] if position < len(tops) else []
        item["top_logprobs"] = [entry(i, value) for i, value in ranked[: choice.request.logprobs]]
        content.append(item)
    return {"content": content}


def completion_logprobs(
    choice: Choice, ids: Sequence[int], logprobs: Sequence[float], tops: Sequence[Tops], offset: int
) -> dict[str, Any] | None:
    """`logprobs` of a completions choice or chunk. `offset` is the text length before these ids."""
    if choice.request.logprobs is None:
        return None
    tokenizer, as_ids = choice.chat.tokenizer, choice.request.tokens_as_ids
    texts = [_token_text(tokenizer, i, as_ids) for i in ids]
    offsets, ranked = [], []
    for position, (token_id, logprob) in enumerate(zip(ids, logprobs, strict=False)):
        offsets.append(offset)
        offset += len(texts[position])
        row = {texts[position]: finite(logprob)}
        for other, value in (tops[position] if position < len(tops) else [])[: choice.request.logprobs]:
            if other != token_id:
                row.setdefault(_token_text(tokenizer, other, as_ids), finite(value))
        ranked.append(row)
    return {
        "text_offset": offsets,
        "token_logprobs": [finite(value) for value in logprobs],
        "tokens": texts,
        "top_logprobs": ranked,
    }


def tool_call_id() -> str:
    """A fresh tool call id as vLLM writes them."""
    return f"chatcmpl-tool-{uuid.uuid4().hex}"


def _message(parsed: ParsedReply) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": parsed.content}
    if parsed.reasoning is not None:
        out["reasoning"] = parsed.reasoning
    if parsed.tool_calls:
        out["content"] = parsed.content or None
        out["tool_calls"] = [_call(call) for call in parsed.tool_calls]
    return out


def _call(call: tuple[str, str]) -> dict[str, Any]:
    return {
        "id": tool_call_id(),
        "type": "function",
        "function": {"name": call[0], "arguments": call[1]},
    }


def finish_with(choice: Choice, parsed: ParsedReply) -> str | None:
    """`tool_calls` where a turn ended with complete calls; a cut reply stays `length`."""
    return "tool_calls" if parsed.tool_calls and choice.finish_reason == "stop" else choice.finish_reason


def chat_choice(choice: Choice) -> dict[str, Any]:
    """One choice of a plain chat reply."""
    parsed = choice.parse()
    out: dict[str, Any] = {
        "index": choice.index,
        "message": _message(parsed),
        "logprobs": chat_logprobs(choice, choice.ids, choice.logprobs, choice.tops),
        "finish_reason": finish_with(choice, parsed),
        "stop_reason": choice.stop_reason,
    }
    if choice.request.return_token_ids:
        out["token_ids"] = choice.ids
    return out | choice.policy()


def completion_choice(choice: Choice) -> dict[str, Any]:
    """One choice of a plain completions reply."""
    out: dict[str, Any] = {
        "index": choice.index,
        "text": choice.text,
        "logprobs": completion_logprobs(choice, choice.ids, choice.logprobs, choice.tops, 0),
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
    if choice.request.return_token_ids:
        out["prompt_token_ids"] = choice.prompt_ids
        out["token_ids"] = choice.ids
    return out | choice.policy()


def reply_body(envelope: Envelope, choices: Sequence[Choice], used: dict[str, Any]) -> dict[str, Any]:
    """The body of a plain reply."""
    chat = envelope.request.kind == "chat"
    shaped = [chat_choice(choice) if chat else completion_choice(choice) for choice in choices]
    kind = "chat.completion" if chat else "text_completion"
    out = envelope.frame(kind, shaped, choices)
    if len(choices) == 1:
        out |= choices[0].policy()
    out["usage"] = used
    if chat and envelope.request.return_token_ids:
        out["prompt_token_ids"] = choices[0].prompt_ids
    return out
