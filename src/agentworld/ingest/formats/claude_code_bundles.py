"""Which files of Claude Code are read together: a session, those that begin with its lines, and its sub-agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from agentworld.ingest.decoding import decode
from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.files import StreamEntry
from agentworld.ingest.formats.claude_code_lines import META
from agentworld.records import exact_json

_LOOKED_AT = 32
_COMPARED = 8  # of these, lines with a message: copies stand at the beginning
_DEPTH = 1000
_FOLDER = "/subagents"


class _Head(msgspec.Struct):
    """The beginning of a line. `message`: as its bytes stand."""

    sessionId: Any = None
    session_id: Any = None
    agentId: Any = msgspec.UNSET
    uuid: Any = None
    message: msgspec.Raw = msgspec.Raw()


_NAMES = [name for name in _Head.__struct_fields__ if name != "message"]


class _File:
    """What the beginning of a file says. `lines`: those with a message, by the hash of uuid and content: lines of other
    sessions may have the same uuid where people wrote it by hand.
    """

    def __init__(self, entry: Entry) -> None:
        self.folder, _, name = f"/{entry.name}".rpartition("/")
        self.path = f"/{entry.name}".removesuffix(META).removesuffix(".jsonl")
        self.sessions: list[str] = []
        self.lines: list[int] = []
        self.is_agent = True
        if _FOLDER in self.folder:
            self.sessions.append(self.folder.partition(_FOLDER)[0].rpartition("/")[2])
        if not name.endswith(META):
            self._read([line for line in islice(_heads(entry), _LOOKED_AT) if line is not None])

    def _read(self, lines: list[_Head]) -> None:
        spoken = [(line, said) for line in lines if (said := bytes(line.message))[:1] == b"{"]
        of_agent = [line.agentId is not msgspec.UNSET for line in lines]
        self.is_agent = (any(of_agent) and _FOLDER in self.folder) or (
            bool(spoken) and all(line.agentId is not msgspec.UNSET for line, _ in spoken)
        )
        for line in lines:
            self.sessions += [each for each in (line.sessionId, line.session_id) if isinstance(each, str) and each]
        self.lines = [hash((line.uuid, said)) for line, said in spoken[:_COMPARED] if isinstance(line.uuid, str)]


def _heads(entry: Entry) -> Iterator[_Head | None]:
    """What the first lines say, as far as it decides what they belong to; None for what is no object.

    A message is compared by its bytes: a session that was resumed begins with copies of the other's lines.
    """
    if isinstance(entry, StreamEntry) and entry.shape != "jsonl":
        yield from (_head(value) for _, value in entry.documents())
        return
    read = msgspec.json.Decoder(_Head).decode
    for _, line in entry.lines():
        try:
            yield read(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            # A lenient reader may take it, as it does when the file is read.
            try:
                yield _head(decode(line, "", _DEPTH)[0])
            except BadDocument:
                yield None


def _head(given: Any) -> _Head | None:
    if not isinstance(given, dict):
        return None
    value = dict(given)
    said = exact_json.encode_lenient(value.pop("message", None))
    known = {name: value[name] for name in _NAMES if name in value}
    return _Head(message=msgspec.Raw(said), **known)


def look(entry: StreamEntry) -> None:
    """See Format: what tells where it belongs."""
    entry.noted = _File(entry)


def _looked_at(entry: Entry) -> _File:
    found = getattr(entry, "noted", None)
    if not isinstance(found, _File):
        return _File(entry)
    entry.noted = None  # type: ignore[attr-defined]  # It is asked for once.
    return found


def bundles(entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
    """The entries that belong together."""
    files = [_looked_at(entry) for entry in entries]
    group = list(range(len(files)))

    def root(index: int) -> int:
        while group[index] != index:
            group[index] = group[group[index]]
            index = group[index]
        return index

    def join(one: int, other: int) -> None:
        first, second = sorted((root(one), root(other)))
        group[second] = first

    owner: dict[object, int] = {}
    mains: dict[str, list[int]] = {}
    for index, file in enumerate(files):
        for key in (file.path, *file.lines):
            join(index, owner.setdefault(key, index))
        if not file.is_agent:
            for session in dict.fromkeys(file.sessions):
                mains.setdefault(session, []).append(index)
    for index, file in enumerate(files):
        if file.is_agent:
            found = [main for session in file.sessions for main in mains.get(session, ())]
            if found:
                join(index, max(found, key=lambda main: _shared(files[main].folder, file.folder)))
    together: dict[int, list[Entry]] = {}
    for index, entry in enumerate(entries):
        together.setdefault(root(index), []).append(entry)
    return together.values()


def _shared(one: str, other: str) -> int:
    """How many folders two paths begin with."""
    count = 0
    for mine, its in zip(one.split("/"), other.split("/"), strict=False):
        if mine != its:
            break
        count += 1
    return count
