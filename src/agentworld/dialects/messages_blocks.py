"""Anthropic Messages: one message with its content blocks -> canonical messages."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agentworld.dialects.fields import Fields
from agentworld.dialects.media import Images, content_of, source_image
from agentworld.errors import InvalidRequestError
from agentworld.records import FunctionCall, MediaPart, Message, Role, TextPart, ToolCall

RAW_ARGUMENTS = "_raw_arguments"
"""The API has no place for tool arguments that are no JSON object. They travel as `{"_raw_arguments": TEXT}`, and are
that text again when the client sends them back."""

HARMLESS_IN_BLOCK = frozenset({"cache_control", "citations", "caller"})
_ROLES: tuple[Role, ...] = ("user", "assistant", "system")


def read_message(item: Any, path: str, images: Images) -> list[Message]:
    """The messages that one message of the API stands for: tool results are messages of their own, before the text."""
    fields = Fields(item, path)
    role = fields.one_of("role", _ROLES)
    content = fields.raw("content")
    fields.finish(HARMLESS_IN_BLOCK)
    where = f"{path}.content"
    if isinstance(content, str):
        return [Message(role=role, content=content)]
    if not isinstance(content, list):
        raise InvalidRequestError(f"{where} must be a string or a list of blocks", path=where)
    if role == "assistant":
        return [_assistant(content, where)]
    results: list[Message] = []
    parts: list[TextPart | MediaPart] = []
    for position, block in enumerate(content):
        inner = Fields(block, f"{where}[{position}]")
        kind = inner.need("type", str)
        if kind == "tool_result" and role == "user":
            results.append(_tool_result(inner, images))
        else:
            parts.append(_part(kind, inner, images if role == "user" else None))
    if not parts and results:
        return results
    said = content_of(parts) if parts else ""
    return [*results, Message(role=role, content=said)]


def as_messages(role: Role, texts: list[str]) -> list[Message]:
    """One message with the texts, or none where there are none. A single text is a string, as it says the same."""
    if not texts:
        return []
    return [Message(role=role, content=content_of([TextPart(text=text) for text in texts]))]


def order_results(messages: list[Message]) -> list[Message]:
    """The messages with tool results in the order of their calls.

    Clients that run calls at once send results as they come. The API tells them apart by id, but many chat formats show
    no ids, and the model would take one result for another.
    """
    out: list[Message] = []
    places: dict[str | None, int] = {}
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        # Once for each run of results, as a turn may hold thousands.
        out.extend(_in_order(results, places))
        results = []
        places = {call.id: place for place, call in reversed(list(enumerate(message.tool_calls)))}
        out.append(message)
    return [*out, *_in_order(results, places)]


def _in_order(results: list[Message], places: dict[str | None, int]) -> list[Message]:
    """Results as their calls stand; those of no call last, in the order in which they came."""
    return sorted(results, key=lambda result: places.get(result.tool_call_id, len(places))) if places else results


def text_blocks(value: Any, path: str) -> list[str]:
    """The texts of a list that may hold text blocks alone."""
    if not isinstance(value, list):
        raise InvalidRequestError(f"{path} must be a string or a list of blocks", path=path)
    texts = []
    for position, block in enumerate(value):
        inner = Fields(block, f"{path}[{position}]")
        kind = inner.need("type", str)
        if kind != "text":
            raise _unsupported(kind, inner)
        texts.append(_text(inner))
    return texts


def _part(kind: str, block: Fields, images: Images | None) -> TextPart | MediaPart:
    """A text, or an image where `images` are taken."""
    if kind == "text":
        return TextPart(text=_text(block))
    if kind != "image" or images is None:
        raise _unsupported(kind, block)
    image = source_image(block, images)
    block.finish(HARMLESS_IN_BLOCK)
    return image


def _text(block: Fields) -> str:
    text = block.need("text", str)
    block.finish(HARMLESS_IN_BLOCK)
    return text


def _unsupported(kind: str, block: Fields) -> InvalidRequestError:
    return InvalidRequestError(
        f"content blocks of type {kind[:60]!r} are not supported here",
        path=block.where("type"),
        hint="Send text blocks, and images in messages of the user",
    )


def _tool_result(block: Fields, images: Images) -> Message:
    call_id = block.need("tool_use_id", str)
    value = block.raw("content")
    failed = block.take("is_error", bool) or False
    parts: list[TextPart | MediaPart] = [TextPart(text=value)] if isinstance(value, str) else []
    if value and not parts:
        if not isinstance(value, list):
            raise block.refuse("content", "a string or a list of blocks")
        for position, item in enumerate(value):
            inner = Fields(item, f"{block.where('content')}[{position}]")
            parts.append(_part(inner.need("type", str), inner, images))
    block.finish(HARMLESS_IN_BLOCK)
    # An empty result says nothing of the failure, which the text of others does.
    empty = all(isinstance(part, TextPart) and not part.text for part in parts)
    content = ("error" if failed else "") if empty else content_of(parts)
    return Message(role="tool", content=content, tool_call_id=call_id)


def _assistant(content: list[Any], where: str) -> Message:
    """The reply that the blocks are pieces of: its text is one string, however it was cut into blocks."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for position, item in enumerate(content):
        block = Fields(item, f"{where}[{position}]")
        kind = block.need("type", str)
        if kind == "text":
            texts.append(_text(block))
        elif kind == "thinking":
            thoughts.append(block.need("thinking", str))
            block.finish(HARMLESS_IN_BLOCK | {"signature"})
        elif kind == "redacted_thinking":
            # Encrypted by the service that made it; nobody else can read it.
            block.finish(HARMLESS_IN_BLOCK | {"data"})
        elif kind == "tool_use":
            calls.append(_tool_use(block))
        else:
            raise _unsupported(kind, block)
    return Message(
        role="assistant",
        content="".join(texts) if texts or not calls else None,
        # Thinking that the service does not show comes back as an empty text.
        reasoning="".join(thoughts) or None,
        tool_calls=tuple(calls),
    )


def _tool_use(block: Fields) -> ToolCall:
    call_id, name = block.need("id", str), block.need("name", str)
    value = block.raw("input")
    block.finish(HARMLESS_IN_BLOCK)
    return ToolCall(id=call_id, function=FunctionCall(name, written(value)))


def written(value: Any) -> str:
    """Tool arguments as text: the JSON of the input, or the raw text that `arguments_object` put there."""
    if isinstance(value, dict) and list(value) == [RAW_ARGUMENTS] and isinstance(value[RAW_ARGUMENTS], str):
        raw: str = value[RAW_ARGUMENTS]
        return raw
    # Spaced as the templates of most models write it, so that a reply sent back renders as it was sampled.
    return json.dumps({} if value is None else value, ensure_ascii=False)


def arguments_object(arguments: str) -> dict[str, Any]:
    """Tool arguments as the object that the API demands; anything else goes under `RAW_ARGUMENTS`, nothing is lost."""
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {RAW_ARGUMENTS: arguments}
