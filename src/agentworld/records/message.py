"""What agents and models say to each other: messages with text, reasoning, tool calls, tool results and media.

The wire shape is the one of OpenAI chat, so that stored messages go to templates, trainers and data sets unchanged.
Tool arguments stay the raw text that was sent; media stay outside, by digest.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool"]


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """One block of text."""

    text: str


class MediaPart(msgspec.Struct, frozen=True, tag_field="type", tag="media", omit_defaults=True):
    """An image, audio or other blob; `digest` is the hex BLAKE2b-128 of its bytes, which the pool keeps once."""

    digest: str
    media_type: str
    detail: str | None = None


Part = TextPart | MediaPart


class FunctionCall(msgspec.Struct, frozen=True):
    """The function that a tool call names; `arguments` is raw text, which need not be JSON."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """One tool call; ids may repeat over turns, so records are keyed by step and position, not by this id."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. `content` is text, parts, or null (null and "" are not the same)."""

    role: Role
    content: str | tuple[Part, ...] | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """The text of the content, media left out."""
        if isinstance(self.content, tuple):
            return "".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """The media of the content, in order."""
        if isinstance(self.content, tuple):
            return tuple(part for part in self.content if isinstance(part, MediaPart))
        return ()


# A tool as OpenAI chat describes it: {"type": "function", "function": {"name", "description", "parameters"}}.
Tool = dict[str, Any]
