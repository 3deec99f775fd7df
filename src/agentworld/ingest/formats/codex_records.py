"""Lines of a rollout file, and the texts that its items have, by which events are known as repeating them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agentworld.ingest.formats.values import list_of, object_of, text_of


class Record(NamedTuple):
    """One line: what kind it is, and its payload."""

    place: str
    at: float
    kind: str
    payload: dict[str, Any]


class Texts:
    """The texts that items have, by which events are known as repeating them."""

    def __init__(self) -> None:
        self.user: set[str] = set()
        self.assistant: set[str] = set()
        self.reasoning: set[str] = set()
        self._longer: list[str] = []
        self._asked = 0

    def users(self, text: str) -> bool:
        """Whether an item of the user has the text, maybe with more around it."""
        if text in self.user:
            return True
        self._asked += 1
        text = text.strip()
        # Every one of them looks through all texts.
        return self._asked <= 200 and bool(text) and any(text in longer for longer in self._longer)

    def add(self, item: dict[str, Any]) -> None:
        """Take note of an item."""
        content = item.get("content")
        texts = [t for part in list_of(content) if (t := text_of(object_of(part).get("text"))) is not None]
        texts += [content] if isinstance(content, str) else []
        if item.get("role") == "assistant":
            self.assistant |= {*texts, "".join(texts)}
        elif item.get("role") == "user":
            self.user |= {*texts, "".join(texts)}
            self._longer += texts
        elif item.get("type") == "reasoning":
            told = [t for part in list_of(item.get("summary")) if (t := text_of(object_of(part).get("text")))]
            self.reasoning |= {*texts, *told, "".join(texts)}


def texts_of(records: Iterable[Record]) -> Texts:
    """The texts of all items, those of replaced histories too."""
    found = Texts()
    for record in records:
        if record.kind == "response_item":
            found.add(record.payload)
        elif record.kind == "compacted":
            for item in list_of(record.payload.get("replacement_history")):
                found.add(object_of(item))
    return found
