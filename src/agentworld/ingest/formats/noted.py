"""Values out of records of strangers: what has another type than it should is noted with its place, and left out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Notes
from agentworld.ingest.formats.media import Put
from agentworld.ingest.run import Note
from agentworld.records import MediaPart, ToolCall, exact_json
from agentworld.records.message import FunctionCall

_NOT_IN_NAMES = re.compile("[\x00\ud800-\udfff]")
_LONGEST_NAME = 256
_MOST_METADATA = 64 * 1024
_MAX_ID = 2**31 - 1
_LATEST = 253402300799.0  # the end of the year 9999


class Values:
    """Reads the values of one file. Each method gives None where the value is absent or null, and notes a wrong one.
    `beside`: reads images that lie beside the file.
    """

    def __init__(self, file: str, note: Notes, beside: Callable[[str], bytes | None] = lambda address: None) -> None:
        self.file = file
        self.beside = beside
        self._note = note

    def lost(self, place: str, why: str, hint: str | None = None) -> None:
        """Note something that could not be read."""
        self._note(Note(file=self.file, place=place, why=why, hint=hint))

    def documents(self, entry: Entry) -> Iterator[tuple[str, Any]]:
        """The documents of the file with their places, but for those that are none, which are told as lost."""
        for place, value in entry.documents():
            if isinstance(value, BadDocument):
                self.lost(value.place, value.why)
            else:
                yield place, value

    def said(self, place: str, why: str, hint: str | None = None) -> None:
        """Note something by which nothing is lost."""
        self._note(Note(file=self.file, place=place, why=why, hint=hint, lost=False))

    def told(self, place: str, put: Put) -> MediaPart:
        """The part for a medium, what is to be noted of it noted."""
        if put.why is not None:
            self._note(Note(file=self.file, place=place, why=put.why, lost=put.lost))
        return put.part

    def object(self, record: Mapping[str, Any], key: str, place: str) -> dict[str, Any] | None:
        """An object."""
        value: dict[str, Any] | None = self._of(record, key, place, dict, "an object")
        return value

    def items(self, record: Mapping[str, Any], key: str, place: str) -> list[Any] | None:
        """A list."""
        value: list[Any] | None = self._of(record, key, place, list, "a list")
        return value

    def text(self, record: Mapping[str, Any], key: str, place: str) -> str | None:
        """A text."""
        value: str | None = self._of(record, key, place, str, "a text")
        return value

    def name(self, record: Mapping[str, Any], key: str, place: str) -> str | None:
        """A short text, as of a model or an agent."""
        value = self.text(record, key, place)
        return None if value is None else self.short(value, f"{place}.{key}")

    def short(self, value: str, place: str) -> str:
        """A name as the pool takes it: what it cannot hold is left out, which is said."""
        if len(value) <= _LONGEST_NAME and value.isprintable():
            return value
        kept = _NOT_IN_NAMES.sub("", value)[:_LONGEST_NAME]
        if kept != value:
            self.said(place, f"a name is shortened to {len(kept)} characters that a name can hold")
        return kept

    def number(self, record: Mapping[str, Any], key: str, place: str) -> float | None:
        """A finite number."""
        value = record.get(key)
        if value is None:
            return None
        found = as_finite(value)
        if found is None:
            self.lost(f"{place}.{key}", f"it must be a finite number, not {kind_of(value)}")
        return found

    def count(self, record: Mapping[str, Any], key: str, place: str) -> int | None:
        """A whole number from 0 to 2^31 - 1."""
        value = record.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_ID:
            self.lost(f"{place}.{key}", f"it must be a whole number from 0 on, not {kind_of(value)}")
            return None
        return value

    def ids(self, record: Mapping[str, Any], key: str, place: str) -> list[int] | None:
        """Token ids; one that is none loses all of them, as places would no longer be right."""
        value = self.items(record, key, place)
        if value is None:
            return None
        for position, each in enumerate(value):
            if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= _MAX_ID:
                self.lost(f"{place}.{key}[{position}]", f"a token id cannot be {kind_of(each)}; the ids are left out")
                return None
        return value

    def logprobs(self, record: Mapping[str, Any], key: str, place: str) -> list[float | None] | None:
        """Log-probabilities; null where one is no finite number."""
        value = self.items(record, key, place)
        if value is None:
            return None
        found: list[float | None] = []
        for position, each in enumerate(value):
            number = None if each is None else as_finite(each)
            if number is None and each is not None:
                self.lost(
                    f"{place}.{key}[{position}]", f"a log-probability cannot be {kind_of(each)}; null stands there"
                )
            found.append(number)
        return found

    def time(self, record: Mapping[str, Any], key: str, place: str) -> float | None:
        """A time as seconds since the epoch, of a number (seconds, or milliseconds) or of ISO 8601; UTC where no zone
        is named.
        """
        value = record.get(key)
        if value is None:
            return None
        found = as_time(value)
        if found is None:
            self.said(f"{place}.{key}", "it is no time that is known here")
        return found

    def bounded(self, value: Any, place: str) -> Any:
        """JSON for metadata; None, with a note, where it is longer than 64 KiB."""
        if value in (None, {}, [], ""):
            return None
        size = len(exact_json.encode(value))
        if size > _MOST_METADATA:
            self.lost(place, f"it is larger than the {_MOST_METADATA} bytes that are kept of such data")
            return None
        return value

    def _of(self, record: Mapping[str, Any], key: str, place: str, kind: type, wanted: str) -> Any:
        value = record.get(key)
        if value is None:
            return None
        if not isinstance(value, kind):
            self.lost(f"{place}.{key}", f"it must be {wanted}, not {kind_of(value)}")
            return None
        return value


def kind_of(value: Any) -> str:
    """What a JSON value is, for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value!r}"[:40]
    return {dict: "an object", list: "a list", str: "a text", type(None): "null"}.get(type(value), type(value).__name__)


def as_finite(value: Any) -> float | None:
    """A number as float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_time(value: Any) -> float | None:
    """See Values.time; None where it is none."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    else:
        number = as_finite(value)
        if number is None:
            return None
        seconds = number / 1000 if number > 1e11 else number
    return seconds if 0 < seconds < _LATEST else None


def json_text(value: Any) -> str:
    """A value as compact JSON text."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError):
        return exact_json.encode_lenient(value).decode()


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def call_of(name: str, arguments: Any, call_id: str) -> ToolCall:
    """A call of a tool; arguments that are no text become their JSON."""
    raw = "" if arguments is None else as_text(arguments)
    return ToolCall(id=call_id, function=FunctionCall(name=name, arguments=raw))
