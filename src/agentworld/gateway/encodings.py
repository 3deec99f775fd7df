"""Ids of texts that were encoded lately: rollouts of one task begin with the same texts, and to encode one takes as
long as everything else about its call."""

from __future__ import annotations

import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable

MAX_BYTES = 64 * 1024 * 1024
SHORTEST = 32
"""Shorter texts, in characters, are encoded as quickly as they are found."""
LONGEST_SHARE = 8
"""A text that takes over one part in so many of all the room is not kept."""


class Encodings:
    """Keeps what `encode` gave for the texts that were used last, up to `max_bytes`. From any thread."""

    def __init__(self, encode: Callable[[str], list[int]], max_bytes: int = MAX_BYTES) -> None:
        self._encode = encode
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0
        """That the texts and their ids take now."""

    def __call__(self, text: str) -> list[int]:
        """The ids of the text, in a list that is the caller's own."""
        if len(text) < SHORTEST:
            return self._encode(text)
        with self._lock:
            known = self._kept.get(text)
            if known is not None:
                self._kept.move_to_end(text)
        if known is not None:
            return known.tolist()
        ids = self._encode(text)  # Two that want one text at once both encode it, as neither should wait.
        self._keep(text, array("I", ids))
        return ids

    def _keep(self, text: str, ids: array[int]) -> None:
        weight = _weight(text, ids)
        if weight > self._max_bytes // LONGEST_SHARE:
            return
        with self._lock:
            if text in self._kept:
                return
            self._kept[text] = ids
            self.bytes += weight
            while self.bytes > self._max_bytes:
                self.bytes -= _weight(*self._kept.popitem(last=False))


def _weight(text: str, ids: array[int]) -> int:
    return sys.getsizeof(text) + sys.getsizeof(ids)
