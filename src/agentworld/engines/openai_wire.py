"""Replies of OpenAI-like engines -> deltas. One reader for plain bodies and stream chunks; fields may be missing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from agentworld.dialects.exchange import Delta, ToolCallDelta
from agentworld.engines import reply_fields as fields
from agentworld.engines.base import EngineBusyError, EngineMissingError
from agentworld.engines.quick_replies import READERS
from agentworld.engines.redact import Redactor
from agentworld.engines.reply_shapes import FLOOR
from agentworld.errors import (
    AgentWorldError,
    ContextLengthError,
    EngineError,
    EngineUnreachableError,
    InvalidRequestError,
)

NO_KEY = Redactor(None)
_LARGEST = sys.float_info.max

_TOO_LONG = (
    "maximum context length",  # vLLM, OpenAI, SGLang
    "max_model_len",  # vLLM
    "longer than the model's context length",  # SGLang
    "exceeds the available context size",  # llama.cpp
    "prompt is too long",  # Anthropic
    "exceed context limit",  # Anthropic, of prompt and max_tokens together
)


def decode(data: bytes, redactor: Redactor = NO_KEY) -> dict[str, Any]:
    """A JSON object; NaN and Infinity, which some engines write, are read too. Errors are redacted."""
    value = decode_any(data, redactor)
    if not isinstance(value, dict):
        raise EngineError("the engine sent JSON that is not an object")
    return value


def decode_any(data: bytes, redactor: Redactor = NO_KEY) -> Any:
    """As `decode`, for routes that answer with lists too."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _lenient(data, redactor)


def _lenient(data: bytes, redactor: Redactor) -> Any:
    """JSON with NaN and Infinity. Text that no caller and no pool could be given (a lone surrogate) is refused."""
    try:
        value = json.loads(data.decode())
        msgspec.json.encode(value)
    except UnicodeDecodeError:
        raise EngineError("the engine sent bytes that are not UTF-8") from None
    except UnicodeEncodeError:
        raise EngineError("the engine sent text with a lone surrogate, which is not Unicode") from None
    except RecursionError:
        raise EngineError("the engine sent JSON that is nested too deep") from None
    except (ValueError, OverflowError):
        seen = redactor.text(data.decode("utf-8", "replace"))[:80]
        raise EngineError(f"the engine sent something that is not JSON: {seen!r}") from None
    return value


def finite(value: Any) -> float | None:
    """A log-probability, or None where there is no finite one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > FLOOR else None


def unreal(values: Iterable[Any]) -> str | None:
    """What is wrong with log-probabilities of which one is infinite or too long for a number; None where none is.

    NaN and -Infinity are how engines write that they have none, and become null. Nobody means these.
    """
    for value in values:
        if value == math.inf or (type(value) is int and abs(value) > _LARGEST):
            return "the engine gave log-probabilities that are infinite or too long"
    return None


def read_body(body: dict[str, Any], *, kind: str, entries: bool, redactor: Redactor = NO_KEY) -> list[Delta]:
    """The deltas of a body or chunk. `kind`: chat or completions; `entries`: keep log-probability objects.

    What holds for the whole call (usage, prompt ids, mode) is on the first; a chunk without choices gives one delta
    that carries only that. An error in the body is raised; EngineError where a field has not its type or range.
    """
    raise_error(body, redactor)
    read = _chat if kind == "chat" else _completion
    deltas = [read(choice, entries) for choice in fields.objects(body, "choices") or []]
    first = deltas[0] if deltas else Delta(index=-1)
    first.usage = fields.usage(body)
    first.prompt_ids = _ids(body, "prompt_token_ids") or first.prompt_ids
    mode, version = fields.text(body, "logprobs_mode") or None, fields.whole(body, "policy_version", fields.MAX_VERSION)
    spans = fields.version_spans(body)
    for delta in deltas or [first]:
        delta.logprobs_mode = mode
        delta.policy_version = version
        if delta.version_spans is None:
            delta.version_spans = spans
    first.policy_run = fields.name(body, "policy_run") or None
    return deltas or [first]


def raise_error(body: dict[str, Any], redactor: Redactor = NO_KEY) -> None:
    """Raise the error that a body or chunk holds, if it holds one."""
    if body.get("error") is not None:
        raise engine_error(_status(body["error"]), body, redactor)


def body_reader(redactor: Redactor, *, kind: str, entries: bool) -> Callable[[bytes], list[Delta]]:
    """`read_body` over the bytes of a body or chunk."""

    def read(data: bytes) -> list[Delta]:
        deltas = None if entries else READERS[kind](data)
        return deltas or read_body(decode(data, redactor), kind=kind, entries=entries, redactor=redactor)

    return read


def _ids(place: dict[str, Any], name: str) -> list[int] | None:
    """Ids from a body, choice or message, or from where proxies such as LiteLLM move them there."""
    found = fields.ids(place, name)
    if found is None and "provider_specific_fields" in place:
        found = fields.ids(fields.mapping(place, "provider_specific_fields"), name)
    return found


def _common(choice: dict[str, Any]) -> Delta:
    return Delta(
        index=fields.whole(choice, "index", fields.MAX_COUNT) or 0,
        ids=_ids(choice, "token_ids"),
        prompt_ids=_ids(choice, "prompt_token_ids"),
        finish_reason=fields.name(choice, "finish_reason") or None,
        stop_reason=fields.stop_reason(choice),
        version_spans=fields.version_spans(choice),
    )


def _chat(choice: dict[str, Any], entries: bool) -> Delta:
    delta = _common(choice)
    message = fields.mapping(choice, "delta") or fields.mapping(choice, "message")
    # A refusal is what the model said, in a field of its own; as content it is stored, and history brings it back so.
    delta.text = fields.text(message, "content") or fields.text(message, "refusal")
    if delta.ids is None and "provider_specific_fields" in message:
        delta.ids = _ids(message, "token_ids")
    delta.reasoning = fields.text(message, "reasoning") or fields.text(message, "reasoning_content")
    delta.tool_calls = tuple(
        _call(call, position) for position, call in enumerate(fields.objects(message, "tool_calls") or [])
    )
    items = fields.objects(fields.mapping(choice, "logprobs"), "content")
    if items is not None:
        values = [item.get("logprob") for item in items]
        fields.numbers(values, "logprob")
        delta.logprobs = [finite(value) for value in values]
        delta.fault = unreal(values)
        if entries:
            delta.entries = [_entry(item) for item in items]
    return delta


def _entry(item: dict[str, Any]) -> dict[str, Any]:
    """A log-probability object without numbers that JSON cannot hold."""
    out = _shown(item)
    out["top_logprobs"] = [_shown(top) for top in fields.objects(item, "top_logprobs") or []]
    return out


def _shown(item: dict[str, Any]) -> dict[str, Any]:
    number = finite(item.get("logprob"))
    return {**item, "token": fields.text(item, "token"), "logprob": FLOOR if number is None else number}


def _call(call: dict[str, Any], position: int) -> ToolCallDelta:
    function = fields.mapping(call, "function")
    arguments = function.get("arguments")
    if arguments is None:
        raw = ""
    else:
        raw = arguments if isinstance(arguments, str) else _arguments(arguments)
    index = fields.whole(call, "index", fields.MAX_COUNT)
    return ToolCallDelta(
        index=position if index is None else index,
        id=fields.text(call, "id") or None,
        name=fields.text(function, "name") or None,
        arguments=raw,
    )


def _arguments(value: Any) -> str:
    fields.plain(value, "arguments")
    return msgspec.json.encode(value).decode()


def _completion(choice: dict[str, Any], entries: bool) -> Delta:
    delta = _common(choice)
    delta.text = fields.text(choice, "text")
    logprobs = fields.mapping(choice, "logprobs")
    values = logprobs.get("token_logprobs")
    if values is None:
        return delta
    if not isinstance(values, list):
        fields.refuse("token_logprobs", "a list of numbers and null")
    fields.numbers(values, "token_logprobs")
    delta.logprobs = [finite(value) for value in values]
    delta.fault = unreal(values)
    if entries:
        delta.entries = _completion_entries(logprobs, delta.logprobs)
    return delta


def _completion_entries(logprobs: dict[str, Any], values: list[float | None]) -> list[dict[str, Any]]:
    """For each token its text, log-probability and alternatives."""
    tops, tokens = logprobs.get("top_logprobs"), logprobs.get("tokens")
    if tops is not None and not (isinstance(tops, list) and all(top is None or isinstance(top, dict) for top in tops)):
        fields.refuse("top_logprobs", "a list of objects and null")
    if tokens is not None and not (isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)):
        fields.refuse("tokens", "a list of texts")
    return [
        {
            "token": tokens[place] if tokens and place < len(tokens) else "",
            "logprob": value,
            "tops": (tops[place] if tops and place < len(tops) else None) or {},
        }
        for place, value in enumerate(values)
    ]


def _status(error: Any) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _message(error: Any) -> str:
    """What an error says, whatever its shape."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    try:
        return str(error)
    except RecursionError:
        return "an error that is nested too deep to show"


def engine_error(status: int, body: Any, redactor: Redactor = NO_KEY) -> AgentWorldError:
    """The error for an engine's answer: what is the caller's fault keeps its status, the rest is the engine's.

    Its texts are the engine's own, redacted.
    """
    error = body.get("error", body) if isinstance(body, dict) else body
    code, param = (error.get("code"), error.get("param")) if isinstance(error, dict) else (None, None)
    text = redactor.text(_message(error))[:2000] or f"HTTP status {status}"
    path = redactor.text(param)[:200] if isinstance(param, str) else None
    if 300 <= status < 400:
        return EngineError(
            f"the engine redirects (HTTP status {status}), which is not followed",
            hint="Set upstream to the address that it redirects to, if you trust that",
        )
    lowered = text.lower()
    too_long = code == "context_length_exceeded" or any(words in lowered for words in _TOO_LONG)
    if too_long and status < 500:
        return ContextLengthError(text, path=path or "messages", hint="Shorten the conversation or max_tokens")
    if status in (400, 413, 415, 422):
        return InvalidRequestError(text, path=path)
    if status == 429:
        return EngineBusyError(f"the engine takes no more calls: {text}", hint="Try again in a moment")
    if status in (503, 529):
        return EngineUnreachableError(f"the engine is not ready: {text}", hint="Try again in a moment")
    if status in (401, 403):
        return EngineError(f"the engine refused the gateway's key: {text}", hint="Check api_key of the model")
    if status == 404:
        return EngineMissingError(
            f"the engine does not know this model or route: {text}", hint="Check the model's name"
        )
    return EngineError(f"the engine failed with HTTP status {status}: {text}")
