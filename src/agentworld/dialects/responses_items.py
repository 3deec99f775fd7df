"""OpenAI Responses: input items -> canonical messages.

Items of one reply (reasoning, text, calls) are one message of the assistant. Items that follow each other belong
together, unless their ids say that they came with different replies of ours; calls whose ids say that they came with
one reply are one message even where a client puts each output behind its call.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

import msgspec

from agentworld.dialects.fields import Fields
from agentworld.dialects.media import Images, content_of
from agentworld.dialects.messages_blocks import order_results
from agentworld.dialects.responses_tools import flat_name, written_input
from agentworld.errors import InvalidRequestError
from agentworld.records import FunctionCall, MediaPart, Message, Role, TextPart, ToolCall

SEALED = "agentworld:"
"""Begins reasoning that clients carry as `encrypted_content`. It is only wrapped: they have the text as well."""
_ITEM_ID = re.compile(r"[a-z]+_(?P<exchange>exc_[0-9a-z]{26})_[0-9]{1,6}")
_ROLES: tuple[Role, ...] = ("system", "developer", "user", "assistant")
_HARMLESS = frozenset({"id", "status", "phase", "caller", "created_by"})

Resolve = Callable[[str, str], dict[str, Any]]
"""From an item's id and its JSON path to the item that it stands for."""
Tools = list[tuple[Any, str]]
"""Tools as they were sent, each with its JSON path."""


def item_id(kind: str, exchange_id: str, index: int) -> str:
    """The id of an output item: what it is, the exchange that it came with, and its place."""
    return f"{kind}_{exchange_id}_{index}"


def exchange_of(value: Any) -> str | None:
    """The exchange that an item of ours came with; None for ids that are not ours."""
    found = _ITEM_ID.fullmatch(value) if isinstance(value, str) else None
    return found["exchange"] if found is not None else None


def seal(reasoning: str) -> str:
    """Reasoning as `encrypted_content`."""
    return SEALED + base64.b64encode(reasoning.encode("utf-8", "surrogatepass")).decode()


def unseal(sealed: str) -> str | None:
    """The reasoning in `encrypted_content` of ours; None for another's, which nobody else can read."""
    if not sealed.startswith(SEALED):
        return None
    try:
        return base64.b64decode(sealed[len(SEALED) :], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


class _Reply:
    """One message of the assistant while its items are read."""

    def __init__(self, exchange: str | None) -> None:
        self.exchange = exchange
        self.answered = False
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []

    def takes(self, exchange: str | None) -> bool:
        """Whether an item that came with `exchange` is part of this message."""
        if exchange is not None and self.exchange is not None:
            return exchange == self.exchange
        return not self.answered

    def message(self) -> Message:
        return Message(
            role="assistant",
            content="".join(self.texts) if self.texts or not self.calls else None,
            reasoning="".join(self.thoughts) or None,
            tool_calls=tuple(self.calls),
        )


def read_items(items: list[Any], path: str, resolve: Resolve, images: Images) -> tuple[list[Message], Tools]:
    """The messages that the items stand for, tool results in the order of their calls, and the tools among them."""
    reader = _Reader(resolve, images)
    for position, item in enumerate(items):
        reader.read(item, f"{path}[{position}]")
    return reader.finish(), reader.tools


class _Reader:
    def __init__(self, resolve: Resolve, images: Images) -> None:
        self._resolve = resolve
        self._images = images
        self.tools: Tools = []
        self._done: list[Message] = []
        self._reply: _Reply | None = None
        self._results: list[Message] = []

    def read(self, item: Any, path: str) -> None:
        fields = Fields(item, path)
        kind = fields.take("type", str) or "message"
        if kind == "message":
            self._message(fields, item)
        elif kind == "reasoning":
            self._open(item).thoughts.extend(_thoughts(fields))
        elif kind in ("function_call", "custom_tool_call"):
            self._open(item).calls.append(_call(fields, kind))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._output(fields)
        elif kind == "additional_tools":
            given = fields.need("tools", list)
            self.tools.extend((tool, f"{fields.where('tools')}[{at}]") for at, tool in enumerate(given))
            fields.finish(_HARMLESS | {"role"})
        elif kind == "item_reference":
            wanted = fields.need("id", str)
            fields.finish()
            self.read(self._resolve(wanted, fields.where("id")), path)
        else:
            raise InvalidRequestError(
                f"items of type {kind[:60]!r} are not supported",
                path=fields.where("type"),
                hint="Send message, reasoning, function_call, custom_tool_call and their outputs",
            )

    def finish(self) -> list[Message]:
        self._flush()
        return order_results(self._done)

    def _open(self, item: dict[str, Any]) -> _Reply:
        """The assistant's message that an item belongs to."""
        exchange = exchange_of(item.get("id"))
        if self._reply is None or not self._reply.takes(exchange):
            self._flush()
            self._reply = _Reply(exchange)
        self._reply.exchange = self._reply.exchange or exchange
        return self._reply

    def _flush(self) -> None:
        if self._reply is not None:
            self._done.append(self._reply.message())
            self._reply = None
        self._done.extend(self._results)
        self._results = []

    def _message(self, fields: Fields, item: dict[str, Any]) -> None:
        role = fields.one_of("role", _ROLES)
        content = _content(fields, "content", self._images if role == "user" else None)
        fields.finish(_HARMLESS)
        if role == "assistant":
            self._open(item).texts.append(Message(role="assistant", content=content).text)
            return
        self._flush()
        self._done.append(Message(role=role, content=content))

    def _output(self, fields: Fields) -> None:
        call_id = fields.need("call_id", str)
        content = _content(fields, "output", self._images)
        fields.finish(_HARMLESS | {"name", "namespace"})
        self._results.append(Message(role="tool", content=content, tool_call_id=call_id))
        if self._reply is not None:
            self._reply.answered = True


def _content(fields: Fields, name: str, images: Images | None) -> str | tuple[TextPart | MediaPart, ...]:
    """Text or parts. A single text part is its string, as it says the same. `images`: None where none can stand."""
    value = fields.raw(name)
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise fields.refuse(name, "a string or a list of parts")
    parts: list[TextPart | MediaPart] = []
    for position, item in enumerate(value):
        part = Fields(item, f"{fields.where(name)}[{position}]")
        kind = part.need("type", str)
        if kind in ("input_text", "output_text", "text"):
            parts.append(TextPart(text=part.need("text", str)))
            part.finish({"annotations", "logprobs", "prompt_cache_breakpoint"})
        elif kind == "refusal":
            parts.append(TextPart(text=part.need("refusal", str)))
            part.finish()
        elif kind == "input_image" and images is not None:
            part.neutral("file_id")
            parts.append(images.data_url(part.need("image_url", str), part.where("image_url"), part.raw("detail")))
            part.finish({"prompt_cache_breakpoint"})
        else:
            raise InvalidRequestError(
                f"content parts of type {kind[:60]!r} are not supported here",
                path=part.where("type"),
                hint="Send input_text parts, and input_image parts as the user",
            )
    return content_of(parts) if parts else ""


def _thoughts(fields: Fields) -> list[str]:
    """The reasoning of an item: its text, else what it carries sealed, else its summary."""
    texts = _texts(fields, "content", ("reasoning_text", "text"))
    summary = _texts(fields, "summary", ("summary_text",))
    sealed = fields.take("encrypted_content", str)
    fields.finish(_HARMLESS)
    if texts:
        return texts
    opened = unseal(sealed) if sealed is not None else None
    return [opened] if opened is not None else ["\n".join(summary)] if summary else []


def _texts(fields: Fields, name: str, kinds: tuple[str, ...]) -> list[str]:
    texts = []
    for position, item in enumerate(fields.take(name, list) or []):
        part = Fields(item, f"{fields.where(name)}[{position}]")
        if part.need("type", str) not in kinds:
            raise part.refuse("type", " or ".join(kinds))
        texts.append(part.need("text", str))
        part.finish()
    return texts


def _call(fields: Fields, kind: str) -> ToolCall:
    call_id = fields.need("call_id", str)
    name = flat_name(fields.take("namespace", str) or "", fields.need("name", str))
    own_id = fields.take("id", str) or ""
    if kind == "custom_tool_call":
        text = fields.need("input", str)
        # What was sampled was no input but something else, and went out as it was.
        arguments = text if own_id.startswith("raw_") and exchange_of(own_id) else written_input(text)
    else:
        value = fields.raw("arguments")
        # Whatever a model produced is kept as it is: text raw, anything else as its JSON.
        arguments = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    fields.finish(_HARMLESS)
    return ToolCall(id=call_id, function=FunctionCall(name, arguments))
