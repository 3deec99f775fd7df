"""Where sequences and conversations would go in the forests, and which trajectories began with the same prompt."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from agentworld.pool.sql.step_digest import conversation_content
from agentworld.pool.sql.tips import MessageTip, TokenTip
from agentworld.records import Message, digest

_KNOWN_BEGINNINGS = 8192
Beginning = tuple[bytes, int, int]
"""By what a prompt is found again: its root, its length and a hash. Who is found by chance shares less, or nothing."""


class TokenTrace(msgspec.Struct, frozen=True, gc=False):
    """Where a sequence would go.

    `first`: number of its blocks that `tip` has; `data`: its ids after those, as uint32; `tail`: those after the last
    full block; `content`: the digest of all its ids; `begins`: by what other trajectories find its prompt, where it is
    the first of its own; then `tip` is another's.
    """

    tip: TokenTip | None
    shared: int
    root: bytes
    first: int
    digests: list[bytes]
    data: bytes
    tail: bytes
    length: int
    content: bytes
    begins: Beginning | None = None


class MessageTrace(msgspec.Struct, frozen=True, gc=False):
    """Where a conversation would go. `keys` and `bodies` are those of its messages after the `shared` ones of `tip`;
    `parts`: whether any of these has more than one text; `begins`: see TokenTrace.
    """

    tip: MessageTip | None
    shared: int
    root: bytes
    messages: list[Message]
    keys: list[bytes]
    bodies: list[bytes]
    prompt_length: int
    content: bytes
    parts: bool = False
    begins: Beginning | None = None


class ToolTrace(msgspec.Struct, frozen=True, gc=False):
    """A tool set: its digest and its JSON; no JSON where there are no tools."""

    digest: bytes
    body: bytes | None


@functools.lru_cache(maxsize=256)
def unspoken(tools: bytes) -> MessageTrace:
    """That of a step without messages."""
    return MessageTrace(None, 0, tools, [], [], [], 0, conversation_content(tools, b"", None))


NO_TOOLS = ToolTrace(digest(b"null"), None)
UNSPOKEN = NO_TOOLS, unspoken(NO_TOOLS.digest)  # the traces of a step without tools and messages


class Beginnings:
    """The trajectory that began last with each of the latest prompts: rollouts of one task have the same."""

    def __init__(self) -> None:
        self._latest: dict[Beginning, str] = {}

    def latest(self, begins: Beginning) -> str:
        """Its id; empty where none is known."""
        return self._latest.get(begins, "")

    def note(self, begins: Beginning, trajectory_id: str) -> None:
        """A trajectory begins so."""
        if len(self._latest) >= _KNOWN_BEGINNINGS:
            self._latest.clear()
        self._latest[begins] = trajectory_id


def beginning_of(tools: bytes, prompt: Sequence[Message] | None) -> Beginning | None:
    """By what a prompt's messages are found; None of none, and of what Python code made of parts without a hash."""
    if not prompt:
        return None
    try:
        return tools, len(prompt), hash(prompt[-1])
    except TypeError:
        return None


def said_length(messages: Sequence[Message]) -> int:
    """About how many bytes of JSON they are."""
    size = 0
    for message in messages:
        size += 32 + len(message.reasoning or "")
        if isinstance(message.content, str):
            size += len(message.content)
        elif message.content is not None:
            size += sum([32 + len(getattr(part, "text", "")) for part in message.content])
        for call in message.tool_calls:
            size += 64 + len(call.function.arguments)
    return size
