"""Archives and compressed files as entries: read as streams where they lie, with nothing extracted to disk.

Links, devices and encrypted members are left out with a note.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentworld.ingest.files import StreamEntry
from agentworld.ingest.tars import BLOCK, TarArchive, is_tar
from agentworld.ingest.unpacking import Packing, packing_of, unpacked
from agentworld.ingest.zips import ZIP, zip_members

_SUFFIXES = {"gz": (".gz",), "bz2": (".bz2",), "xz": (".xz",), "zst": (".zst", ".zstd")}


def expanded(entry: StreamEntry, nested: int = 0) -> Iterator[StreamEntry]:
    """The entry itself, or, where it is an archive or compressed, what is in it."""
    start = entry.start(BLOCK)
    if packing := packing_of(start):
        inner = PackedEntry(entry, packing)
        if nested >= entry.limits.nested:
            entry.say("$", f"archives are nested more than {entry.limits.nested} deep; it is not read")
            return
        yield from expanded(inner, nested + 1)
    elif start.startswith(ZIP) or is_tar(start):
        if nested >= entry.limits.nested:
            entry.say("$", f"archives are nested more than {entry.limits.nested} deep; it is not read")
            return
        for member in zip_members(entry) if start.startswith(ZIP) else TarArchive(entry).members():
            yield from expanded(member, nested + 1)
    else:
        yield entry


class PackedEntry(StreamEntry):
    """A file that is compressed by itself; known by its name without the ending."""

    def __init__(self, inner: StreamEntry, packing: Packing) -> None:
        name = inner.name
        for suffix in _SUFFIXES[packing]:
            name = name.removesuffix(suffix)
        if name.endswith(".tgz"):
            name = name.removesuffix(".tgz") + ".tar"
        super().__init__(name, inner.size, limits=inner.limits, note=inner.note)
        self._inner, self._packing = inner, packing

    def _stream(self) -> Iterator[bytes]:
        return unpacked(self._inner.chunks(), self._packing, self.limits.archive_ratio)
