"""Values out of strangers' JSON: each is what it should be, or absent; media become parts by their digest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from agentworld.ingest import limits
from agentworld.ingest.formats.media import Put, put_base64, put_nothing, put_url
from agentworld.ingest.formats.noted import as_finite
from agentworld.records import MediaPart, Message, TextPart, Usage

Content = str | tuple[TextPart | MediaPart, ...]
Say = Callable[..., None]
"""`say(place, why, hint=None, lost=True)`: a note on the file that is read."""

MAX_NAME = 256
MAX_PROMPTS = limits.MAX_PROMPTS
TOO_MANY = "the prompts of this run grow too large together; from here on, replies are kept as messages alone"
_MAX_COUNT = 2**31 - 1
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UNNAMED = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def text_of(value: Any) -> str | None:
    """A text, else None."""
    return value if isinstance(value, str) else None


def name_of(value: Any) -> str | None:
    """A text that can be a name (of a model, an agent, an id), without control characters and at most 256 long."""
    return _named(value) if isinstance(value, str) else None


@lru_cache(maxsize=1024)
def _named(value: str) -> str | None:
    return _UNNAMED.sub("", value)[:MAX_NAME] or None


def is_unique(value: str | None) -> bool:
    """Whether an id is a UUID, so that nothing else has it; those that people wrote by hand are not."""
    return value is not None and _UUID.fullmatch(value) is not None


def object_of(value: Any) -> dict[str, Any]:
    """A JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """A JSON list, else an empty one."""
    return value if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A count of tokens, else 0."""
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else 0


def usage_of(prompt: int, completion: int) -> Usage | None:
    """Counts of tokens; None where there are none."""
    return Usage(prompt_tokens=prompt, completion_tokens=completion) if prompt or completion else None


def seconds_of(value: Any) -> float:
    """An ISO 8601 time (UTC where it names no zone) or seconds since the epoch, as seconds since the epoch; 0 where it
    is neither.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError, OSError):
            return 0.0
    else:
        seconds = as_finite(value) or 0.0
    return seconds if 0.0 < seconds < 1e11 else 0.0


_encode = json.JSONEncoder(ensure_ascii=False).encode


def json_text(value: Any) -> str:
    """A value as JSON text, spaced as the templates of most models write it."""
    return _encode(value)


def bounded(value: Any, characters: int = 500) -> Any:
    """A value for metadata: small ones as they are, larger ones as the beginning of their text."""
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)[:characters]
    said = value if isinstance(value, str) else json_text(value)
    return said if len(said) <= characters else f"{said[:characters]}..."


def picked(fields: Mapping[str, Any], names: tuple[str, ...], characters: int = 500) -> dict[str, Any]:
    """Those of the fields that are there, bounded, for metadata."""
    return {name: bounded(fields[name], characters) for name in names if fields.get(name) is not None}


def content_of(parts: list[TextPart | MediaPart]) -> Content:
    """Parts as content: a single text is a string, as it says the same; none is the empty one."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return tuple(parts)


def ordered_results(results: list[Message], call_ids: list[str]) -> list[Message]:
    """Results in the order of their calls, those of no call last."""
    places = {call: place for place, call in reversed(list(enumerate(call_ids)))}
    return sorted(results, key=lambda result: places.get(result.tool_call_id or "", len(places)))


class Media:
    """The media of one run: bytes and media type by digest. What cannot be read is said; see media.py."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.found: dict[str, tuple[bytes, str]] = {}

    def url(self, url: Any, place: str, detail: Any = None) -> MediaPart:
        """The part for a data URL; any other address is kept, and not fetched."""
        if not isinstance(url, str):
            return self._told(put_nothing(self.found, said="image"), place)
        return self._told(put_url(self.found, url, "image", name_of(detail)), place)

    def encoded(self, data: Any, media_type: Any, place: str, detail: Any = None) -> MediaPart:
        """The part for base64, of the type that its bytes say, else of the one that it is said to be."""
        if not isinstance(data, str):
            return self._told(put_nothing(self.found, said=text_of(media_type)), place)
        part = put_base64(self.found, data, text_of(media_type), name_of(detail))
        if isinstance(part, MediaPart):
            return part
        return self._told(put_nothing(self.found, f"a medium cannot be read: {part}", text_of(media_type)), place)

    def _told(self, put: Put, place: str) -> MediaPart:
        if put.why is not None:
            self._say(place, put.why, lost=put.lost)
        return put.part
