"""A trajectory's conversation for other models: as messages of OpenAI chat, and as one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.records import MediaPart, Message, TextPart


def chat_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As OpenAI chat takes them, text alone: an image is named by its kind in brackets, reasoning is left out."""
    made = []
    for message in messages:
        one: dict[str, Any] = {"role": message.role, "content": _text(message)}
        if message.tool_calls:
            one["tool_calls"] = msgspec.to_builtins(message.tool_calls)
        if message.tool_call_id is not None:
            one["tool_call_id"] = message.tool_call_id
        made.append(one)
    return made


def transcript(messages: Sequence[Message], *, reasoning: bool = False, most: int | None = None) -> str:
    """One text with a heading for each message, tool calls included.

    `most`: where it has more characters than that, its middle is left out and how much is said.
    """
    parts = []
    for number, message in enumerate(messages, start=1):
        lines = [f"[{number}] {message.role}{f' {message.name}' if message.name else ''}"]
        if reasoning and message.reasoning:
            lines.append(f"(reasoning) {message.reasoning}")
        if text := _text(message):
            lines.append(text)
        lines += [f"(calls {call.function.name}) {call.function.arguments}" for call in message.tool_calls]
        parts.append("\n".join(lines))
    return shortened("\n\n".join(parts), most)


def shortened(text: str, most: int | None) -> str:
    """`text`, without its middle where it has over `most` characters."""
    if most is None or len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _text(message: Message) -> str:
    if isinstance(message.content, tuple):
        return "".join(_part(part) for part in message.content)
    return message.content or ""


def _part(part: TextPart | MediaPart) -> str:
    return part.text if isinstance(part, TextPart) else f"[{part.media_type}]"
