"""What a session keeps in memory, in bytes: tips share messages and ids, so each object counts once."""

from __future__ import annotations

from sys import getsizeof

import numpy as np

from agentworld.forest import Tip, TokenArray
from agentworld.records import Message, TextPart

_PER_TIP = 512
_PER_MESSAGE = 256
"""The message's own objects, its match key and what counts them here."""
_PER_POINTER = 16
"""Each tip lists its messages and their keys."""


class Holdings:
    """Counts what tips hold. `bytes` is about what would be freed if all were let go."""

    def __init__(self) -> None:
        self.bytes = 0
        self._counts: dict[int, int] = {}

    def take(self, tip: Tip) -> None:
        """Count a tip in."""
        self.bytes += _PER_TIP + _PER_POINTER * len(tip.messages)
        # Conversations share all but their last messages, which were weighed when they came.
        counts = self._counts
        for message in tip.messages:
            count = counts.get(id(message), 0)
            counts[id(message)] = count + 1
            if not count:
                self.bytes += message_bytes(message)
        self.take_ids(tip.ids)

    def drop(self, tip: Tip) -> None:
        """Count a tip out that was counted in."""
        self.bytes -= _PER_TIP + _PER_POINTER * len(tip.messages)
        for message in tip.messages:
            self._release(message, message_bytes(message))
        self.drop_ids(tip.ids)

    def take_ids(self, ids: TokenArray | None) -> None:
        """Count an array in; a view counts as the array that it looks into."""
        if ids is not None:
            whole = owner(ids)
            self._hold(whole, whole.nbytes)

    def drop_ids(self, ids: TokenArray | None) -> None:
        """Count an array out."""
        if ids is not None:
            whole = owner(ids)
            self._release(whole, whole.nbytes)

    def _hold(self, item: object, size: int) -> None:
        count = self._counts.get(id(item), 0)
        self._counts[id(item)] = count + 1
        if not count:
            self.bytes += size

    def _release(self, item: object, size: int) -> None:
        count = self._counts[id(item)] - 1
        if count:
            self._counts[id(item)] = count
        else:
            del self._counts[id(item)]
            self.bytes -= size


def owner(ids: TokenArray) -> TokenArray:
    """The array that owns the memory of `ids`."""
    return ids.base if isinstance(ids.base, np.ndarray) else ids


def message_bytes(message: Message) -> int:
    """About how many bytes a message takes."""
    size, content = _PER_MESSAGE, message.content
    if content.__class__ is str:
        size += getsizeof(content)
        if not message.tool_calls and message.reasoning is message.tool_call_id is message.name is None:
            return size
    elif content is not None:
        size += sum(getsizeof(part.text) for part in content if isinstance(part, TextPart))
    for text in (message.reasoning, message.tool_call_id, message.name):
        if text is not None:
            size += getsizeof(text)
    for call in message.tool_calls:
        size += getsizeof(call.id) + getsizeof(call.function.name) + getsizeof(call.function.arguments)
    return size
