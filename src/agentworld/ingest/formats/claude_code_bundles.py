"""Which files of Claude Code are read together: a session, those that begin with its lines, and its sub-agents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.formats.claude_code_lines import META
from agentworld.records import exact_json

_LOOKED_AT = 32
_FOLDER = "/subagents"


class _File:
    """What the beginning of a file says. `lines`: those with a message, by uuid and content: lines of other sessions
    may have the same uuid where people wrote it by hand.
    """

    def __init__(self, entry: Entry) -> None:
        self.folder, _, name = f"/{entry.name}".rpartition("/")
        self.path = f"/{entry.name}".removesuffix(META).removesuffix(".jsonl")
        self.sessions: list[str] = []
        self.lines: list[bytes] = []
        self.is_agent = True
        if _FOLDER in self.folder:
            self.sessions.append(self.folder.partition(_FOLDER)[0].rpartition("/")[2])
        if not name.endswith(META):
            documents = [line for _, line in islice(entry.documents(), _LOOKED_AT) if isinstance(line, dict)]
            self.is_agent = any("agentId" in line for line in documents) and _FOLDER in self.folder
            self._read(documents)

    def _read(self, documents: list[dict[str, Any]]) -> None:
        spoken = [line for line in documents if isinstance(line.get("message"), dict)]
        self.is_agent = self.is_agent or (bool(spoken) and all("agentId" in line for line in spoken))
        for line in documents:
            for field in ("sessionId", "session_id"):
                if isinstance(line.get(field), str) and line[field]:
                    self.sessions.append(line[field])
        for line in spoken:
            if isinstance(line.get("uuid"), str):
                said = exact_json.encode_lenient([line["uuid"], line["message"]])
                self.lines.append(hashlib.blake2b(said, digest_size=16).digest())


def bundles(entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
    """The entries that belong together."""
    files = [_File(entry) for entry in entries]
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
