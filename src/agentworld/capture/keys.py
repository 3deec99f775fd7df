"""Match keys of whole conversations, under which a session knows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from agentworld.forest import chain, match_key, token_array
from agentworld.records import Message, digest

ROOT = b"conversation"
"""Parent of every conversation's first message in match keys."""


def message_keys(messages: Sequence[Message], known: Sequence[bytes] | None = None) -> list[bytes]:
    """Match keys of a conversation's prefixes."""
    return chain(ROOT, messages, match_key, known or ())


class LateKeys(Sequence[bytes]):
    """`message_keys` of a conversation, worked out once the first is asked for: of one that is not gone on with, and of
    which no mark is kept, nobody asks.
    """

    __slots__ = ("_keys", "_messages")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages: Sequence[Message] | None = messages
        self._keys: list[bytes] = []

    def then(self, message: Message) -> Sequence[bytes]:
        """The keys with that of the message after these."""
        messages = self._messages
        return LateKeys([*messages, message]) if messages is not None else [*self, match_key(self[-1], message)]

    def _all(self) -> list[bytes]:
        messages = self._messages
        if messages is not None:
            self._keys = message_keys(messages)
            self._messages = None
        return self._keys

    def __len__(self) -> int:
        messages = self._messages
        return len(self._keys if messages is None else messages)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        return self._all()[place]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | LateKeys) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]  # As lists are.


def ids_key(prompt: Sequence[int]) -> bytes:
    """The key of a prompt that is ids and no messages."""
    return digest(b"ids", token_array(prompt).tobytes())
