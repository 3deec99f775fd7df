"""Replies of OpenAI-like engines -> deltas. One reader for plain bodies and stream chunks; fields may be missing."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from agentworld.dialects.exchange import Delta, ToolCallDelta
from agentworld.engines.base import EngineBusyError
from agentworld.errors import (
    AgentWorldError,
    ContextLengthError,
    EngineError,
    EngineUnreachableError,
    InvalidRequestError,
)
from agentworld.records import Usage, VersionSpan

FLOOR = -9999.0
"""What vLLM writes where it has no finite log-probability."""


def decode(data: bytes) -> dict[str, Any]:
    """A JSON object; NaN and Infinity, which some engines write, are read too."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except ValueError:
            raise EngineError(f"the engine sent something that is not JSON: {data[:80]!r}") from None
    if not isinstance(value, dict):
        raise EngineError("the engine sent JSON that is not an object")
    return value


def finite(value: Any) -> float | None:
    """A log-probability, or None where there is no finite one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    return number if math.isfinite(number) and number > FLOOR else None


def read_body(body: dict[str, Any], *, kind: str, entries: bool) -> list[Delta]:
    """The deltas of a body or chunk. `kind`: chat or completions; `entries`: keep log-probability objects.

    What holds for the whole call (usage, prompt ids, mode) is on the first; a chunk without choices gives one delta
    that carries only that. An error in the body is raised.
    """
    if body.get("error") is not None:
        raise engine_error(_status(body["error"]), body)
    choices = body.get("choices")
    deltas = []
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict):
            deltas.append(_chat(choice, entries) if kind == "chat" else _completion(choice, entries))
    first = deltas[0] if deltas else Delta(index=-1)
    usage = body.get("usage")
    if isinstance(usage, dict):
        first.usage = Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
    if isinstance(body.get("prompt_token_ids"), list):
        first.prompt_ids = body["prompt_token_ids"]
    mode = body.get("logprobs_mode")
    for delta in deltas or [first]:
        delta.logprobs_mode = mode if isinstance(mode, str) else None
        delta.policy_version = _integer(body.get("policy_version"))
        if delta.version_spans is None:
            delta.version_spans = _spans(body.get("version_spans"))
    run = body.get("policy_run")
    first.policy_run = run if isinstance(run, str) else None
    return deltas or [first]


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _spans(value: Any) -> tuple[VersionSpan, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    return tuple(VersionSpan(int(start), int(version)) for start, version in value)


def _ids(choice: dict[str, Any], name: str) -> list[int] | None:
    """Ids from the choice, or from where proxies such as LiteLLM move them."""
    for place in (choice, choice.get("provider_specific_fields")):
        if isinstance(place, dict) and isinstance(place.get(name), list):
            found: list[int] = place[name]
            return found
    return None


def _common(choice: dict[str, Any]) -> Delta:
    return Delta(
        index=_integer(choice.get("index")) or 0,
        ids=_ids(choice, "token_ids"),
        prompt_ids=_ids(choice, "prompt_token_ids"),
        finish_reason=choice.get("finish_reason") or None,
        stop_reason=choice.get("stop_reason"),
        version_spans=_spans(choice.get("version_spans")),
    )


def _chat(choice: dict[str, Any], entries: bool) -> Delta:
    delta = _common(choice)
    message = choice.get("delta") or choice.get("message") or {}
    delta.text = message.get("content") or ""
    delta.reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
    delta.tool_calls = tuple(
        _call(call, position) for position, call in enumerate(message.get("tool_calls") or []) if isinstance(call, dict)
    )
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        items = logprobs["content"]
        delta.logprobs = [finite(item.get("logprob")) for item in items]
        if entries:
            delta.entries = [_entry(item) for item in items]
    return delta


def _entry(item: dict[str, Any]) -> dict[str, Any]:
    """A log-probability object without numbers that JSON cannot hold."""
    out = {**item, "logprob": finite(item.get("logprob")) if finite(item.get("logprob")) is not None else FLOOR}
    out["top_logprobs"] = [
        {**top, "logprob": finite(top.get("logprob")) if finite(top.get("logprob")) is not None else FLOOR}
        for top in item.get("top_logprobs") or []
    ]
    return out


def _call(call: dict[str, Any], position: int) -> ToolCallDelta:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if arguments is None:
        raw = ""
    else:
        raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    index = _integer(call.get("index"))
    return ToolCallDelta(
        index=position if index is None else index,
        id=call.get("id") or None,
        name=function.get("name") or None,
        arguments=raw,
    )


def _completion(choice: dict[str, Any], entries: bool) -> Delta:
    delta = _common(choice)
    delta.text = choice.get("text") or ""
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict) and isinstance(logprobs.get("token_logprobs"), list):
        delta.logprobs = [finite(value) for value in logprobs["token_logprobs"]]
        tops = logprobs.get("top_logprobs")
        if entries and isinstance(tops, list):
            delta.entries = [{"tops": top or {}} for top in tops]
    return delta


def _status(error: Any) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def engine_error(status: int, body: Any) -> AgentWorldError:
    """The error for an engine's answer: what is the caller's fault keeps its status, the rest is the engine's."""
    error = body.get("error", body) if isinstance(body, dict) else body
    message, code, param = str(error), None, None
    if isinstance(error, dict):
        message = str(error.get("message") or error.get("detail") or error)
        code, param = error.get("code"), error.get("param")
    text = message[:2000] or f"HTTP status {status}"
    path = param if isinstance(param, str) else None
    lowered = text.lower()
    too_long = code == "context_length_exceeded" or "maximum context length" in lowered or "max_model_len" in lowered
    if too_long and status < 500:
        return ContextLengthError(text, path=path or "messages", hint="Shorten the conversation or max_tokens")
    if status in (400, 413, 415, 422):
        return InvalidRequestError(text, path=path)
    if status == 429:
        return EngineBusyError(f"the engine takes no more calls: {text}", hint="Try again in a moment")
    if status == 503:
        return EngineUnreachableError(f"the engine is not ready: {text}", hint="Try again in a moment")
    if status in (401, 403):
        return EngineError(f"the engine refused the gateway's key: {text}", hint="Check api_key of the model")
    if status == 404:
        return EngineError(f"the engine does not know this model or route: {text}", hint="Check the model's name")
    return EngineError(f"the engine failed with HTTP status {status}: {text}")
