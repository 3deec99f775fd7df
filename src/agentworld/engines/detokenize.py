"""Text from ids as they arrive: no half characters, no half stop strings."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from agentworld.engines.tokenizer import TokenizerAdapter


class TextStream:
    """Grows the text of a token stream. Joined, the pieces equal decoding all ids at once.

    Byte-level vocabularies go through an incremental UTF-8 decoder, which holds an unfinished character back
    and writes U+FFFD for bytes that never become one. Other vocabularies decode a sliding window.
    """

    def __init__(self, tokenizer: TokenizerAdapter, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._byte_level = tokenizer.is_byte_level
        self._ids: list[int] = []
        self._start = 0
        self._shown = ""

    def feed(self, ids: Iterable[int]) -> str:
        """Text that these ids complete; may be empty."""
        if self._byte_level:
            data = b"".join(self._tokenizer.token_bytes(i) for i in ids if i not in self._skip)
            return self._utf8.decode(data)
        self._ids.extend(i for i in ids if i not in self._skip)
        text = self._tokenizer.decode(self._ids[self._start :])
        if text.endswith("�"):
            return ""
        fresh = text[len(self._shown) :]
        if len(self._ids) - self._start > 32:
            self._start = len(self._ids) - 8
            text = self._tokenizer.decode(self._ids[self._start :])
        self._shown = text
        return fresh

    def finish(self) -> str:
        """What was held back at the end."""
        if self._byte_level:
            return self._utf8.decode(b"", final=True)
        text = self._tokenizer.decode(self._ids[self._start :])
        fresh, self._shown = text[len(self._shown) :], text
        return fresh


class StopStrings:
    """Finds the first stop string in a growing text and says how much of the text is safe to show."""

    def __init__(self, stops: Sequence[str], include: bool) -> None:
        self._stops = tuple(stops)
        self._include = include
        self._longest = max((len(stop) for stop in stops), default=0)
        self.text = ""
        self.found: str | None = None

    def feed(self, piece: str) -> bool:
        """Add text; True once a stop string is complete. The text is then cut before it (after it: `include`)."""
        if self.found is not None or not piece:
            return self.found is not None
        searched = max(0, len(self.text) - self._longest + 1)
        self.text += piece
        hits = [(self.text.find(stop, searched), -len(stop), stop) for stop in self._stops]
        hits = [hit for hit in hits if hit[0] >= 0]
        if hits:
            position, _, self.found = min(hits)
            self.text = self.text[: position + (len(self.found) if self._include else 0)]
        return self.found is not None

    @property
    def safe(self) -> int:
        """Length of the text that no later piece can turn into part of a stop string."""
        if self.found is not None or not self._stops:
            return len(self.text)
        for start in range(max(0, len(self.text) - self._longest + 1), len(self.text)):
            tail = self.text[start:]
            if any(stop.startswith(tail) for stop in self._stops):
                return start
        return len(self.text)
