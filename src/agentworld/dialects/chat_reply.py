"""OpenAI chat completions: reply -> response body or stream events, errors, and messages on the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.dialects.exchange import Delta, Reply, Request, listed
from agentworld.dialects.media import as_data_url
from agentworld.errors import AgentWorldError
from agentworld.records import MediaPart, Message, TextPart, Usage

DONE = b"data: [DONE]\n\n"


def error_body(error: AgentWorldError) -> dict[str, Any]:
    """The error as the OpenAI API spells it."""
    message = error.advice()
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": error.path, "code": error.code}}


def wire_message(
    message: Message, *, developer: bool = True, media: Mapping[str, bytes] | None = None
) -> dict[str, Any]:
    """A message as a chat API takes it; `developer`: whether the other side knows that role, else it is `system`.
    `media`: the bytes of images by digest, which go as data URLs.

    Thinking stands in both spellings, `reasoning` and the older `reasoning_content`, since each is all that some read.
    """
    role = "system" if message.role == "developer" and not developer else message.role
    content: Any = message.content
    if isinstance(content, tuple):
        content = [_part(part, media or {}) for part in content]
    out: dict[str, Any] = {"role": role, "content": content}
    if message.reasoning is not None:
        out["reasoning"] = out["reasoning_content"] = message.reasoning
    if message.tool_calls:
        out["tool_calls"] = msgspec.to_builtins(message.tool_calls)
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        out["name"] = message.name
    return out


def wire_messages(request: Request, *, developer: bool, images_of_tools: bool = True) -> list[dict[str, Any]]:
    """A request's messages as a chat API takes them. `images_of_tools`: whether tool messages may show images; else
    those of the results of one turn follow them in a message of the user.
    """
    out: list[dict[str, Any]] = []
    later: list[dict[str, Any]] = []
    for message in request.messages:
        if later and message.role != "tool":
            out.append({"role": "user", "content": later})
            later = []
        sent = wire_message(message, developer=developer, media=request.media)
        if message.role == "tool" and message.media and not images_of_tools:
            later += [part for part in sent["content"] if part["type"] != "text"]
            sent["content"] = [part for part in sent["content"] if part["type"] == "text"] or ""
        out.append(sent)
    return [*out, {"role": "user", "content": later}] if later else out


def shorten_ids(messages: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Messages on the wire with ids of tool calls of at most `limit` characters (40 or more), where the other side
    takes no longer ones. They only tie results to calls within one request, so nothing has to be changed back.
    """

    def short(value: Any) -> Any:
        if not isinstance(value, str) or len(value) <= limit:
            return value
        return f"call_{hashlib.blake2b(value.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"

    out = []
    for message in messages:
        calls = message.get("tool_calls")
        if isinstance(calls, list) and any(
            isinstance(call, dict) and short(call.get("id")) is not call.get("id") for call in calls
        ):
            changed = [{**call, "id": short(call.get("id"))} if isinstance(call, dict) else call for call in calls]
            message = {**message, "tool_calls": changed}
        own = message.get("tool_call_id")
        if short(own) is not own:
            message = {**message, "tool_call_id": short(own)}
        out.append(message)
    return out


def _part(part: TextPart | MediaPart, media: Mapping[str, bytes]) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    image = {"url": as_data_url(part, media), **({"detail": part.detail} if part.detail is not None else {})}
    return {"type": "image_url", "image_url": image}


def response_body(request: Request, reply: Reply) -> dict[str, Any]:
    """The body of a plain reply; ids and log-probabilities only where the caller asked for them."""
    choices = []
    for choice in reply.choices:
        hidden = request.hide_reasoning and choice.message.reasoning is not None
        message = wire_message(msgspec.structs.replace(choice.message, reasoning=None) if hidden else choice.message)
        out: dict[str, Any] = {
            "index": choice.index,
            "message": message,
            "finish_reason": choice.finish_reason,
            "logprobs": {"content": choice.entries or []} if request.logprobs else None,
        }
        if request.return_token_ids:
            out["token_ids"] = listed(choice.ids)
        choices.append(out)
    body: dict[str, Any] = {
        "id": reply.reply_id,
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.model,
        "choices": choices,
        "usage": usage_body(reply.usage),
    }
    if request.return_token_ids:
        body["prompt_token_ids"] = listed(reply.prompt_ids)
    return body


def usage_body(usage: Usage | None) -> dict[str, int] | None:
    """Token counts as the API reports them."""
    if usage is None:
        return None
    total = usage.prompt_tokens + usage.completion_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": total,
    }


def error_event(error: AgentWorldError) -> bytes:
    """The event for a call that failed after the stream had begun; the stream ends with it."""
    return b"data: " + msgspec.json.encode(error_body(error)) + b"\n\n"


class ChatStream:
    """Events of one streamed reply. `delta` may be sent at once; `finish` only after the reply is durable."""

    def __init__(self, request: Request, reply_id: str, model: str, created: int) -> None:
        self._request = request
        self._base = {"id": reply_id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._begun: set[int] = set()
        self._prompt_sent = False

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return b"data: " + msgspec.json.encode({**self._base, "choices": choices, **more}) + b"\n\n"

    def delta(self, delta: Delta) -> bytes:
        """The event for one piece, without its finish reason; b"" where it says nothing to this caller."""
        body: dict[str, Any] = {}
        if delta.index not in self._begun:
            self._begun.add(delta.index)
            body["role"] = "assistant"
            body["content"] = ""
        if delta.reasoning and not self._request.hide_reasoning:
            body["reasoning"] = delta.reasoning
            body["reasoning_content"] = delta.reasoning
        if delta.text:
            body["content"] = delta.text
        if delta.tool_calls:
            body["tool_calls"] = [
                {
                    "index": call.index,
                    **({"id": call.id, "type": "function"} if call.id else {}),
                    "function": {**({"name": call.name} if call.name else {}), "arguments": call.arguments},
                }
                for call in delta.tool_calls
            ]
        choice: dict[str, Any] = {"index": delta.index, "delta": body, "finish_reason": None}
        wanted = bool(body)
        if self._request.logprobs and delta.entries:
            choice["logprobs"] = {"content": delta.entries}
            wanted = True
        if self._request.return_token_ids and delta.ids:
            choice["token_ids"] = delta.ids
            wanted = True
        if not wanted:
            return b""
        if self._request.return_token_ids and not self._prompt_sent and delta.prompt_ids is not None:
            self._prompt_sent = True
            return self._event([choice], prompt_token_ids=delta.prompt_ids)
        return self._event([choice])

    def finish(self, reply: Reply) -> bytes:
        """The finish reasons, the usage where it was asked for, and the end of the stream."""
        out = [
            self._event([{"index": choice.index, "delta": {}, "finish_reason": choice.finish_reason}])
            for choice in reply.choices
        ]
        if self._request.include_usage:
            out.append(self._event([], usage=usage_body(reply.usage)))
        return b"".join(out) + DONE

    def fail(self, error: AgentWorldError) -> bytes:
        """What ends the stream of a call that failed."""
        return error_event(error)
