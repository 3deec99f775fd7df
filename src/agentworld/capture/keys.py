"""Match keys of whole conversations, under which a session knows them."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.forest import chain, match_key, token_array
from agentworld.records import Message, digest

ROOT = b"conversation"
"""Parent of every conversation's first message in match keys."""


def message_keys(messages: list[Message] | tuple[Message, ...], known: list[bytes] | None = None) -> list[bytes]:
    """Match keys of a conversation's prefixes."""
    return chain(ROOT, messages, match_key, known or ())


def ids_key(prompt: Sequence[int]) -> bytes:
    """The key of a prompt that is ids and no messages."""
    return digest(b"ids", token_array(prompt).tobytes())
