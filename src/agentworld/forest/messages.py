"""The message forest: conversations as hash chains with one node a message, rooted at the canonical tools.

Two keys of a message are kept apart. The exact key identifies stored content, byte for byte. The match key decides
whether a request continues a stored conversation, and looks past what clients change on the way back: a string equals
one text block, tool arguments compare as JSON, a missing field equals null, reasoning is compared separately because
many clients drop it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agentworld.records import exact_json
from agentworld.records.ids import digest, framed, framed_digest
from agentworld.records.message import Message, Part, TextPart, Tool

Key = Callable[[bytes, Message], bytes]

_EXACT, _MATCH = framed(b"exact"), framed(b"match")
_LENGTH = struct.Struct(">Q").pack  # how `framed` writes the length before each part
_canonical = msgspec.json.Encoder(order="sorted")
_NO_TOOLS = digest(b"tools", b"[]")


def tools_digest(tools: Sequence[Tool] | None) -> bytes:
    """The root of conversations with these tools; key order does not matter, the order of tools does."""
    return digest(b"tools", _sorted(list(tools))) if tools else _NO_TOOLS


def exact_key(parent: bytes, message: Message) -> bytes:
    """Identity of stored content: the message as it is, under `parent`."""
    return exact_digest(parent, exact_json.encode(message))


def exact_digest(parent: bytes, message: bytes) -> bytes:
    """`exact_key` of a message that is JSON already."""
    # As digest(b"exact", parent, message) is.
    return framed_digest(b"".join((_EXACT, _LENGTH(len(parent)), parent, _LENGTH(len(message)), message)))


def match_key(parent: bytes, message: Message) -> bytes:
    """Identity for routing: what the message says, under `parent`."""
    content: Any = message.content
    calls: Any = message.tool_calls
    if calls or content.__class__ is not str:
        content = _said(message)
        calls = [(call.id, call.function.name, canonical_arguments(call.function.arguments)) for call in calls]
    said = _sorted((message.role, content, calls, message.tool_call_id, message.name))
    # As digest(b"match", parent, said) is.
    return framed_digest(b"".join((_MATCH, _LENGTH(len(parent)), parent, _LENGTH(len(said)), said)))


def _said(message: Message) -> str | tuple[Part, ...] | None:
    """The content, where several spellings mean the same in one of them."""
    content = message.content
    if isinstance(content, tuple):
        if not content:
            content = None
        elif len(content) == 1 and isinstance(content[0], TextPart):
            content = content[0].text
    if content == "" and message.tool_calls:
        content = None  # Clients send either beside tool calls.
    return content


def says_the_same(mine: Message, yours: Message) -> bool:
    """Whether the two have one match key, and neither has another reasoning than the other."""
    if (mine.role, mine.tool_call_id, mine.name) != (yours.role, yours.tool_call_id, yours.name):
        return False
    if len(mine.tool_calls) != len(yours.tool_calls) or _said(mine) != _said(yours):
        return False
    if mine.reasoning != yours.reasoning and mine.reasoning is not None and yours.reasoning is not None:
        return False
    for own, other in zip(mine.tool_calls, yours.tool_calls, strict=True):
        if own == other:
            continue
        if (own.id, own.function.name) != (other.id, other.function.name):
            return False
        if canonical_arguments(own.function.arguments) != canonical_arguments(other.function.arguments):
            return False
    return True


def _sorted(value: Any) -> bytes:
    try:
        return _canonical.encode(value)
    except UnicodeEncodeError:  # A lone surrogate; what has none is never written like this.
        return json.dumps(msgspec.to_builtins(value), sort_keys=True).encode()


def canonical_arguments(arguments: str) -> str:
    """Tool arguments as sorted compact JSON where they are JSON, else as they are."""
    try:
        return _canonical.encode(msgspec.json.decode(arguments)).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


def chain(root: bytes, messages: Sequence[Message], key: Key, known: Sequence[bytes] = ()) -> list[bytes]:
    """The keys of all prefixes: item i identifies messages 0..i under `root`. `known`: its first keys."""
    keys = list(known)
    parent = keys[-1] if keys else root
    for message in messages[len(keys) :]:
        parent = key(parent, message)
        keys.append(parent)
    return keys
