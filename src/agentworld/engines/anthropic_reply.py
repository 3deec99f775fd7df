"""Replies of Anthropic's Messages API -> deltas, from a plain body or from the events of a stream.

Blocks that are neither text, thinking nor tool calls (the service's own tools and their results) go to a caller of the
same API as they came, in a plain reply; the step's metadata names the kinds that are not on record.
"""

from __future__ import annotations

import json
from typing import Any

from agentworld.dialects.exchange import Delta, ToolCallDelta
from agentworld.engines import reply_fields as fields
from agentworld.engines.openai_wire import NO_KEY, decode, engine_error
from agentworld.engines.redact import Redactor
from agentworld.records import Usage

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def ends_message(data: bytes) -> bool:
    """Whether this event is the last of a stream."""
    return b"message_stop" in data and decode(data).get("type") == "message_stop"


class MessageReader:
    """Reads one call. `max_tokens`: a limit that the caller did not set, to go on record."""

    def __init__(self, redactor: Redactor = NO_KEY, *, max_tokens: int | None = None) -> None:
        self._redactor = redactor
        self._usage: dict[str, Any] = {}
        self._kinds: dict[int, str] = {}
        self._silent: set[int] = set()
        self._metadata: dict[str, Any] = {} if max_tokens is None else {"max_tokens_sent": max_tokens}
        self._left_out: list[str] = []

    def read(self, data: bytes) -> list[Delta]:
        """The deltas of a body or of one event."""
        value = decode(data, self._redactor)
        kind = fields.text(value, "type")
        if kind == "error" or value.get("error") is not None:
            error = fields.mapping(value, "error")
            raise engine_error(_STATUS.get(fields.text(error, "type"), 500), value, self._redactor)
        if kind == "message":
            return [self._whole(value)]
        if kind == "message_start":
            self._count(fields.mapping(value, "message"))
            return [Delta(metadata={"upstream_usage": dict(self._usage)})]
        if kind == "content_block_start":
            return self._begin(_index(value), fields.mapping(value, "content_block"))
        if kind == "content_block_delta":
            return self._piece(_index(value), fields.mapping(value, "delta"))
        if kind == "content_block_stop":
            return self._stop(_index(value))
        if kind == "message_delta":
            self._count(value)
            delta = Delta(metadata=self._metadata)
            self._end(delta, fields.mapping(value, "delta"))
            return [delta]
        return []  # `message_stop`, `ping`, and events that are new.

    def _begin(self, index: int, block: dict[str, Any]) -> list[Delta]:
        kind = self._kinds[index] = fields.text(block, "type")
        if kind == "text":
            return [Delta(text=fields.text(block, "text"))]
        if kind == "thinking":
            return [Delta(reasoning=fields.text(block, "thinking"), signature=fields.text(block, "signature") or None)]
        if kind == "redacted_thinking":
            return [Delta(redacted=fields.text(block, "data"))]
        if kind == "tool_use":
            given = fields.mapping(block, "input")
            fields.plain(given, "input")
            if not given:
                self._silent.add(index)
            return [Delta(tool_calls=(_call(index, block, _text(given) if given else ""),))]
        self._leave_out(kind)
        return []

    def _piece(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        kind = fields.text(delta, "type")
        if kind == "text_delta":
            return [Delta(text=fields.text(delta, "text"))]
        if kind == "thinking_delta":
            return [Delta(reasoning=fields.text(delta, "thinking"))]
        if kind == "signature_delta":
            return [Delta(signature=fields.text(delta, "signature"))]
        if kind == "input_json_delta" and self._kinds.get(index) == "tool_use":
            text = fields.text(delta, "partial_json")
            if text:
                self._silent.discard(index)
            return [Delta(tool_calls=(ToolCallDelta(index=index, arguments=text),))]
        return []

    def _stop(self, index: int) -> list[Delta]:
        """A call without arguments has an empty object, which streams do not say."""
        if index not in self._silent:
            return []
        self._silent.discard(index)
        return [Delta(tool_calls=(ToolCallDelta(index=index, arguments="{}"),))]

    def _whole(self, body: dict[str, Any]) -> Delta:
        blocks = fields.objects(body, "content") or []
        fields.plain(blocks, "content")
        delta = Delta(blocks=blocks)
        calls: list[ToolCallDelta] = []
        for index, block in enumerate(blocks):
            kind = fields.text(block, "type")
            if kind == "text":
                delta.text += fields.text(block, "text")
            elif kind == "thinking":
                delta.reasoning += fields.text(block, "thinking")
            elif kind == "tool_use":
                calls.append(_call(index, block, _text(fields.mapping(block, "input"))))
            elif kind != "redacted_thinking":
                self._leave_out(kind)
        delta.tool_calls = tuple(calls)
        self._count(body)
        delta.metadata = self._metadata
        self._end(delta, body)
        return delta

    def _leave_out(self, kind: str) -> None:
        kind = kind[:60]
        if kind not in self._left_out:
            self._left_out.append(kind)
            self._metadata["blocks_left_out"] = self._left_out

    def _count(self, place: dict[str, Any]) -> None:
        """Take the counts in; those of later events stand for the whole reply."""
        usage = fields.mapping(place, "usage")
        fields.plain(usage, "usage")
        self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _end(self, delta: Delta, place: dict[str, Any]) -> None:
        reason = fields.text(place, "stop_reason")
        if reason:
            delta.finish_reason = _FINISH.get(reason, "stop")
            if reason not in _FINISH:
                self._metadata["upstream_stop_reason"] = reason[:60]
        delta.stop_reason = fields.text(place, "stop_sequence") or None
        if self._usage:
            read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
            prompt = fields.summed(fields.whole(self._usage, name, fields.MAX_COUNT) or 0 for name in read)
            reply = fields.whole(self._usage, "output_tokens", fields.MAX_COUNT) or 0
            delta.usage = Usage(prompt, reply)
            self._metadata["upstream_usage"] = self._usage


def _index(value: dict[str, Any]) -> int:
    return fields.whole(value, "index", fields.MAX_COUNT) or 0


def _call(index: int, block: dict[str, Any], arguments: str) -> ToolCallDelta:
    return ToolCallDelta(
        index=index,
        id=fields.text(block, "id") or None,
        name=fields.text(block, "name") or None,
        arguments=arguments,
    )


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
