"""Long work, which would hold up every other call of the process while it goes on in the event loop.

How long it is follows from what there is to do, not from the body alone: a few bytes may stand for a long conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from agentworld.records import Message

INLINE_BYTES = 256 * 1024
"""So much is read in the event loop, as that takes a few milliseconds."""
PER_MESSAGE = 256
"""A message takes as long as so many bytes, however short it is."""

P = ParamSpec("P")
T = TypeVar("T")


async def apart(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns, which has to do with about `size` bytes: in a thread where that is large."""
    if size <= INLINE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def weight(messages: Iterable[Message], enough: int = INLINE_BYTES) -> int:
    """About how many bytes the messages are; what goes beyond `enough` is not counted."""
    found = 0
    for message in messages:
        found += PER_MESSAGE + len(message.text) + len(message.reasoning or "")
        for call in message.tool_calls:
            found += len(call.function.arguments)
        if found > enough:
            break
    return found
