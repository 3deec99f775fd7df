"""The latest sequences of each trajectory in memory, so that a step's work is linear in what is new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from agentworld.forest import TokenArray
from agentworld.records import Message

_BRANCHES = 4  # sequences kept per trajectory, so that interleaved sub-agents do not push each other out


class _Sized(Protocol):
    size: int


V = TypeVar("V", bound=_Sized)


class TokenTip:
    """One sequence: its ids as uint32 in bytes, its full blocks' digests, and their rows as far as known."""

    __slots__ = ("_data", "digests", "length", "root", "rows", "size")

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.length = 0
        self.digests: list[bytes] = []
        self.rows: list[int] = []
        self.size = 0
        self._data = bytearray()  # with room to spare, as copying what is long costs more than comparing it

    def append(self, ids: bytes) -> None:
        """Add ids at the end."""
        begin = 4 * self.length
        end = begin + len(ids)
        if not begin:
            self._data = bytearray(ids)
            self.length = end // 4
            return
        if end > len(self._data):
            self._data += bytes(max(end - len(self._data), len(self._data) // 2))
        self._data[begin:end] = ids
        self.length = end // 4

    def first(self, length: int) -> bytes:
        """The first ids."""
        return bytes(self._data[: 4 * length])

    def shared(self, prompt: TokenArray, response: TokenArray) -> int:
        """How many ids the sequence prompt + response has in common with this one from the start."""
        length = self.length
        # Nearly every prompt is the whole sequence before it and more, and bytes compare faster than numbers.
        if len(prompt) >= length and self._data.startswith(prompt[:length]):  # type: ignore[arg-type]  # A buffer.
            return length
        own = np.frombuffer(self._data, dtype="<u4", count=length)
        if len(prompt) < length and self._data.startswith(prompt):  # type: ignore[arg-type]
            found = len(prompt)
        else:
            found = _common(prompt, own)
        return found if found < len(prompt) else found + _common(response, own[found:])

    def weigh(self) -> int:
        """Estimate the bytes anew; returns by how many they grew."""
        before = self.size
        self.size = len(self._data) + 96 * len(self.digests) + 416
        return self.size - before


class MessageTip:
    """One conversation: its messages, the keys of its prefixes, and their rows as far as known."""

    __slots__ = ("keys", "messages", "root", "rows", "size", "weight")

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.messages: list[Message] = []
        self.keys: list[bytes] = []
        self.rows: list[int] = []
        self.weight = 448  # of what the messages hold
        self.size = 0

    def shared(self, messages: Sequence[Message]) -> int:
        """How many messages both have in common from the start."""
        own = self.messages
        length = min(len(own), len(messages))
        if own[:length] == messages[:length]:
            return length
        return next(number for number in range(length) if own[number] != messages[number])

    def weigh(self) -> int:
        """Estimate the bytes anew; returns by how many they grew."""
        before = self.size
        self.size = self.weight + 192 * len(self.keys)
        return self.size - before


class TipCache(Generic[V]):
    """The latest sequences of each trajectory, least recently used dropped beyond `limit` bytes (estimated)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._tips: OrderedDict[str, list[V]] = OrderedDict()

    def get(self, trajectory_id: str) -> Sequence[V]:
        """The trajectory's latest sequences, newest last."""
        return self._tips.get(trajectory_id, ())

    def put(self, trajectory_id: str, tip: V) -> None:
        """Keep a further sequence; the oldest goes where there are too many."""
        tips = self._tips.get(trajectory_id)
        if tips is None:
            self._tips[trajectory_id] = [tip]
        else:
            if len(tips) >= _BRANCHES:
                self._held -= tips.pop(0).size
            tips.append(tip)
            self._tips.move_to_end(trajectory_id)
        self._held += tip.size
        if self._held > self._limit:
            self._shrink()

    def grew(self, trajectory_id: str, tip: V, change: int) -> None:
        """A kept sequence was continued in its place, and takes `change` bytes more."""
        tips = self._tips[trajectory_id]
        if tips[-1] is not tip:
            tips.remove(tip)
            tips.append(tip)
        self._tips.move_to_end(trajectory_id)
        self._held += change
        if self._held > self._limit:
            self._shrink()

    def drop(self, trajectory_id: str) -> None:
        """Forget the trajectory."""
        self._held -= sum(tip.size for tip in self._tips.pop(trajectory_id, ()))

    def clear(self) -> None:
        """Forget all."""
        self._tips.clear()
        self._held = 0

    def _shrink(self) -> None:
        while self._held > self._limit and len(self._tips) > 1:
            _, dropped = self._tips.popitem(last=False)
            self._held -= sum(other.size for other in dropped)


def _common(first: TokenArray, second: TokenArray) -> int:
    length = min(len(first), len(second))
    if not length or first.item(0) != second.item(0):  # As those of two replies mostly do.
        return 0
    differs = first[:length] != second[:length]
    place = int(differs.argmax())
    return place if differs[place] else length
