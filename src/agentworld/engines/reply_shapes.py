"""Shapes of what OpenAI-like engines reply, for typed decoders: those parts that all readers of it share."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from agentworld.engines.reply_fields import MAX_COUNT, MAX_NAME, MAX_VERSION

FLOOR = -9999.0
"""What vLLM writes where it has no finite log-probability."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Version = Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]


class TokenCounts(msgspec.Struct):
    """What was counted."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class CallFunction(msgspec.Struct):
    """What a tool call calls."""

    name: str | None = None
    arguments: str | None = None


class MessageCall(msgspec.Struct):
    """A tool call, or a piece of one."""

    index: Count | None = None
    id: str | None = None
    function: CallFunction | None = None


class Token(msgspec.Struct, gc=False):
    """A log-probability object."""

    logprob: float | None = None


class ChatMessage(msgspec.Struct):
    """The message of a choice, or the piece of one in a chunk."""

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[MessageCall] | None = None
    provider_specific_fields: Any = None
