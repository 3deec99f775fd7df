"""Anthropic Messages: reply -> response body or stream events, and errors.

A reply names the model as the caller did, since Claude Code drops the thinking of replies by other models.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.dialects.exchange import Choice, Delta, Ids, Reply, Request
from agentworld.dialects.messages_blocks import arguments_object
from agentworld.errors import AgentWorldError, ContextLengthError
from agentworld.records import Usage

SIGNATURE = "YWdlbnR3b3JsZA=="
"""Clients drop thinking without a signature when they send it back. It is not checked."""

_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(error: AgentWorldError) -> dict[str, Any]:
    """The error as the Anthropic API spells it; `code` and `param` are ours."""
    message = error.advice()
    if isinstance(error, ContextLengthError):
        # The words by which clients know that they have to shorten the conversation.
        message = f"prompt is too long: {message}"
    elif error.path:
        message = f"{error.path}: {message}"
    kind = _ERRORS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message, "code": error.code, "param": error.path}}


def error_event(error: AgentWorldError) -> bytes:
    """The event that ends a stream which had begun."""
    return _event("error", error=error_body(error)["error"])


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


PING = _event("ping")


def _usage(usage: Usage | None, prompt_ids: Ids | None, told: dict[str, Any] | None = None) -> dict[str, Any]:
    """Token counts; what the engine did not count is 0, as the API demands numbers. `told`: as a service of this API
    counted.
    """
    if told is not None:
        return told
    prompt = usage.prompt_tokens if usage is not None else 0 if prompt_ids is None else len(prompt_ids)
    return {
        "input_tokens": prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": usage.completion_tokens if usage is not None else 0,
    }


def _ending(choice: Choice) -> dict[str, Any]:
    stop = choice.metadata.get("stop_reason")
    if choice.finish_reason == "stop" and isinstance(stop, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": _STOP_REASONS.get(choice.finish_reason, "end_turn"), "stop_sequence": None}


def response_body(request: Request, reply: Reply) -> dict[str, Any]:
    """The body of a plain reply: thinking, then text, then tool calls. Text of white space alone is no block."""
    choice = reply.choices[0]
    message = choice.message
    content: list[dict[str, Any]] = []
    if choice.blocks is not None:
        return _body(request, reply, choice, choice.blocks)
    if message.reasoning:
        content.append({"type": "thinking", "thinking": message.reasoning, "signature": SIGNATURE})
    if message.text.strip():
        content.append({"type": "text", "text": message.text})
    content.extend(
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.function.name,
            "input": arguments_object(call.function.arguments),
        }
        for call in message.tool_calls
    )
    return _body(request, reply, choice, content)


def _body(request: Request, reply: Reply, choice: Choice, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": reply.reply_id,
        "type": "message",
        "role": "assistant",
        "model": request.model or reply.model,
        "content": content,
        **_ending(choice),
        "usage": _usage(reply.usage, reply.prompt_ids, choice.metadata.get("upstream_usage")),
    }


class MessagesStream:
    """Events of one streamed reply.

    Thinking and text go out as they come, in their order. Tool calls go out whole with `finish`: an agent must not act
    on a call before it is on record, and whether arguments are a JSON object shows at their end only.
    """

    def __init__(self, request: Request, reply_id: str, model: str, created: int) -> None:
        self._reply_id = reply_id
        self._model = request.model or model
        self._begun = False
        self._index = 0
        self._open: str | None = None
        self._held: dict[str, str] = {}
        self._signature: str | None = None

    def delta(self, delta: Delta) -> bytes:
        """The events for one piece, without tool calls and the finish reason."""
        out = self._begin(delta.prompt_ids, (delta.metadata or {}).get("upstream_usage"))
        if delta.reasoning:
            if self._signature is not None:
                out += self._close()
            out += self._piece("thinking", delta.reasoning)
        if delta.signature is not None:
            out += self._signed(delta.signature)
        if delta.redacted is not None:
            out += self._close() + self._start({"type": "redacted_thinking", "data": delta.redacted}) + self._stop()
        if delta.text:
            out += self._piece("text", delta.text)
        return out

    def finish(self, reply: Reply) -> bytes:
        """The tool calls, the stop reason with the usage, and the end of the stream."""
        choice = reply.choices[0]
        out = self._begin(reply.prompt_ids) + self._close()
        for call in choice.message.tool_calls:
            block = {"type": "tool_use", "id": call.id, "name": call.function.name, "input": {}}
            arguments = msgspec.json.encode(arguments_object(call.function.arguments)).decode()
            out += self._start(block) + self._delta(type="input_json_delta", partial_json=arguments) + self._stop()
        usage = _usage(reply.usage, reply.prompt_ids, choice.metadata.get("upstream_usage"))
        out += _event("message_delta", delta=_ending(choice), usage=usage)
        return out + _event("message_stop")

    def fail(self, error: AgentWorldError) -> bytes:
        """What ends the stream of a call that failed."""
        return error_event(error)

    def _begin(self, prompt_ids: Ids | None, told: dict[str, Any] | None = None) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        message: dict[str, Any] = {
            "id": self._reply_id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(None, prompt_ids, told),
        }
        return _event("message_start", message=message) + PING

    def _piece(self, kind: str, text: str) -> bytes:
        """A piece of thinking or text; a block begins with its first visible character, as clients drop blank ones."""
        if self._open == kind:
            return self._delta(type=f"{kind}_delta", **{kind: text})
        held = self._held[kind] = self._held.get(kind, "") + text
        if not held.strip():
            return b""
        self._held[kind] = ""
        out = self._close()
        empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
        out += self._start({"type": kind, **empty})
        self._open = kind
        return out + self._delta(type=f"{kind}_delta", **{kind: held})

    def _signed(self, signature: str) -> bytes:
        """Keep the signature for the end of the thinking, which may be empty, as some services show none."""
        out = b""
        if self._open != "thinking":
            out = self._close() + self._start({"type": "thinking", "thinking": "", "signature": ""})
            self._open = "thinking"
        self._signature = (self._signature or "") + signature
        return out

    def _start(self, block: dict[str, Any]) -> bytes:
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, **fields: Any) -> bytes:
        return _event("content_block_delta", index=self._index, delta=fields)

    def _stop(self) -> bytes:
        self._index += 1
        return _event("content_block_stop", index=self._index - 1)

    def _close(self) -> bytes:
        """End the open block, if there is one."""
        if self._open is None:
            return b""
        signature = SIGNATURE if self._signature is None else self._signature
        out = self._delta(type="signature_delta", signature=signature) if self._open == "thinking" else b""
        self._open = self._signature = None
        return out + self._stop()
