"""A large file with many sessions of Claude Code, session by session, so that no more than the open ones are held.

The file is read twice: first only to see which sessions go on from one another, and where each ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentworld.ingest.entry import Entry

LARGE = 32 * 1024 * 1024
"""Files from this size on, in bytes, are read so."""


class _Keys(msgspec.Struct):
    sessionId: Any = None
    session_id: Any = None
    uuid: Any = None
    parentUuid: Any = None
    logicalParentUuid: Any = None


class Part:
    """Lines of a file that belong together, with the file's name."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.name = entry.name
        self.size = 0
        self._documents: list[tuple[str, Any]] = []

    def add(self, place: str, document: Any) -> None:
        """Take one line."""
        self._documents.append((place, document))

    def documents(self) -> Iterator[tuple[str, Any]]:
        """See Entry."""
        return iter(self._documents)

    def chunks(self) -> Iterator[bytes]:
        """See Entry: of the whole file."""
        return self._entry.chunks()

    def read(self) -> bytes:
        """See Entry: of the whole file."""
        return self._entry.read()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """See Entry: of the whole file."""
        return self._entry.lines()

    def document(self) -> Any:
        """See Entry: of the whole file."""
        return self._entry.document()


def parts(entry: Entry) -> Iterator[Part]:
    """The parts of a file of JSON lines, each once its last line has been read."""
    of_line, last = _groups(entry)
    waiting: dict[int, Part] = {}
    for index, (place, document) in enumerate(entry.documents()):
        group = of_line[index] if index < len(of_line) else 0
        if group not in waiting:
            waiting[group] = Part(entry)
        waiting[group].add(place, document)
        if last.get(group) == index:
            yield waiting.pop(group)
    yield from waiting.values()


def _groups(entry: Entry) -> tuple[list[int], dict[int, int]]:
    """Of each line the group of sessions that it is of, and of each group its last line."""
    decoder = msgspec.json.Decoder(_Keys)
    numbers: dict[str, int] = {}
    root: list[int] = [0]  # group 0: lines before the first that names a session
    of_line: list[int] = []
    of_uuid: dict[int, int] = {}

    def find(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = root[number]
        return number

    current = 0
    for _, line in entry.lines():
        try:
            keys = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            of_line.append(current)  # Whatever is wrong with it is told with the session around it.
            continue
        session = next((each for each in (keys.sessionId, keys.session_id) if isinstance(each, str) and each), None)
        if session is not None:
            if session not in numbers:
                numbers[session] = len(root)
                root.append(len(root))
            if current == 0:
                root[0] = numbers[session]
            current = numbers[session]
        of_line.append(current)
        if isinstance(keys.uuid, str):
            of_uuid.setdefault(hash(keys.uuid), current)
        for parent in (keys.parentUuid, keys.logicalParentUuid):
            other = of_uuid.get(hash(parent)) if isinstance(parent, str) else None
            if other is not None and other != current:
                root[find(current)] = find(other)
    grouped = [find(number) for number in of_line]
    return grouped, {group: index for index, group in enumerate(grouped)}
