"""Members of archives as entries: read as streams where they lie, with nothing extracted to disk.

Members' names are text for people, never paths. Links, devices and encrypted members are left out with a note.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import BinaryIO

from agentworld.ingest.entry import BadDocument
from agentworld.ingest.files import (
    CHUNK,
    BrokenOff,
    BytesEntry,
    DiskEntry,
    Packing,
    StreamEntry,
    packing_of,
    unpacked,
)
from agentworld.ingest.limits import MIB

_SUFFIXES = {"gz": (".gz",), "bz2": (".bz2",), "xz": (".xz",), "zst": (".zst", ".zstd")}
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_BLOCK = 512
_KEPT_OF_MEMBER = 4 * MIB
_KEPT = 64 * MIB
_LONGEST_HEADER = MIB
_BYTES_OF_A_MEMBER = 512  # of a listing, with a long name
_END_OF_ZIP = struct.Struct("<4s4H2LH")
_ZIP_METHODS = {zipfile.ZIP_STORED: "", zipfile.ZIP_DEFLATED: "deflate", zipfile.ZIP_BZIP2: "bz2", 93: "zst", 20: "zst"}


def expanded(entry: StreamEntry, nested: int = 0) -> Iterator[StreamEntry]:
    """The entry itself, or, where it is an archive or compressed, what is in it."""
    start = entry.start(_BLOCK)
    if packing := packing_of(start):
        inner = PackedEntry(entry, packing)
        if nested >= entry.limits.nested:
            entry.say("$", f"archives are nested more than {entry.limits.nested} deep; it is not read")
            return
        yield from expanded(inner, nested + 1)
    elif start.startswith(_ZIP) or _is_tar(start):
        if nested >= entry.limits.nested:
            entry.say("$", f"archives are nested more than {entry.limits.nested} deep; it is not read")
            return
        for member in _zip_members(entry) if start.startswith(_ZIP) else TarArchive(entry).members():
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


def _left_out(name: str) -> bool:
    """Whether a member is hidden, as in a folder."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/") if part not in (".", ""))


def _shown(name: str) -> str:
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


# --- zip ----------------------------------------------------------------------------------------------------------
def _zip_members(entry: StreamEntry) -> Iterator[StreamEntry]:
    opened = _random_access(entry)
    if opened is None:
        return
    limits = entry.limits
    try:
        with opened() as file:
            count, directory = _zip_directory(file)
            if count > limits.members or directory > limits.members * _BYTES_OF_A_MEMBER:
                entry.say(
                    "$", f"the archive has more than {limits.members} members; it is not read", hint="See --max-members"
                )
                return
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, struct.error, UnicodeError) as error:
        entry.say("$", f"the zip archive is broken: {error}")
        return
    total = 0
    for info in sorted(infos, key=lambda info: info.filename):
        if info.is_dir() or _left_out(info.filename):
            continue
        name = _shown(info.filename)
        if info.flag_bits & 1:
            entry.say(name, "the member is encrypted")
        elif info.compress_type not in _ZIP_METHODS:
            entry.say(name, f"the member is compressed by the unknown method {info.compress_type}")
        elif total + info.file_size > limits.archive_bytes:
            entry.say(name, f"the members are larger than {limits.archive_bytes} bytes; this one is not read")
        else:
            total += info.file_size
            yield ZipMember(entry, name, info, opened)


def _random_access(entry: StreamEntry) -> Callable[[], BinaryIO] | None:
    """How to open the bytes of an archive that must be read from its end; in memory where it is itself within one."""
    if isinstance(entry, DiskEntry):
        path = entry.path
        return lambda: path.open("rb")
    if isinstance(entry, BytesEntry):
        data = entry.data
    else:
        try:
            data = entry.read()
        except BadDocument:
            entry.say("$", f"a zip archive within another is larger than {entry.limits.document_bytes} bytes")
            return None
    return lambda: io.BytesIO(data)


def _zip_directory(file: BinaryIO) -> tuple[int, int]:
    """How many members the end of an archive announces, and in how many bytes they are listed, before that is read."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - 65536 - _END_OF_ZIP.size))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END_OF_ZIP.size:
        return 0, 0
    _, _, _, _, count, directory, _, _ = _END_OF_ZIP.unpack_from(tail, at)
    file.seek(0)
    # Large archives say it elsewhere: then what comes before the end counts.
    return count, min(directory, size)


class ZipMember(StreamEntry):
    """One file of a zip archive."""

    def __init__(self, archive: StreamEntry, name: str, info: zipfile.ZipInfo, opened: Callable[[], BinaryIO]) -> None:
        super().__init__(f"{archive.name}!{name}", info.file_size, limits=archive.limits, note=archive.note)
        self._info, self._opened = info, opened

    def _stream(self) -> Iterator[bytes]:
        info = self._info
        with self._opened() as file:
            file.seek(info.header_offset)
            header = file.read(30)
            if len(header) < 30 or not header.startswith(b"PK\x03\x04"):
                raise BrokenOff("the member has no header in the archive")
            name_length, extra_length = struct.unpack("<HH", header[26:30])
            file.seek(info.header_offset + 30 + name_length + extra_length)
            raw = _bounded(file, info.compress_size)
            method = _ZIP_METHODS[info.compress_type]
            pieces = unpacked(raw, method, self.limits.archive_ratio) if method else raw
            given = 0
            for piece in pieces:
                given += len(piece)
                if given > info.file_size:
                    raise BrokenOff(f"the member is larger than the {info.file_size} bytes that it announces")
                yield piece
        if given < info.file_size:
            raise BrokenOff(f"the member ends after {given} of {info.file_size} bytes")


def _bounded(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := file.read(min(size, CHUNK))):
        size -= len(chunk)
        yield chunk


# --- tar ----------------------------------------------------------------------------------------------------------
def _is_tar(start: bytes) -> bool:
    if len(start) < _BLOCK:
        return False
    try:
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


class _Reader:
    """The bytes of an archive from one place on, forward only."""

    def __init__(self, entry: StreamEntry) -> None:
        self._chunks = entry.chunks()
        self._held = b""
        self.position = 0

    def read(self, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end."""
        while len(self._held) < count and (chunk := next(self._chunks, None)) is not None:
            self._held += chunk
        piece, self._held = self._held[:count], self._held[count:]
        self.position += len(piece)
        return piece

    def some(self, most: int) -> bytes:
        """What is at hand, up to `most` bytes; nothing at the end."""
        if not self._held:
            self._held = next(self._chunks, b"")
        piece, self._held = self._held[:most], self._held[most:]
        self.position += len(piece)
        return piece

    def skip_to(self, place: int) -> None:
        while self.position < place and self.some(place - self.position):
            pass


class TarArchive:
    """A tar file. One that is compressed can be read forward only, so that readers are kept where they stopped, and of
    the members that were looked at last the beginnings.
    """

    def __init__(self, entry: StreamEntry) -> None:
        self.entry = entry
        self._reader: _Reader | None = None
        self._kept: OrderedDict[int, TarMember] = OrderedDict()
        self._kept_bytes = 0

    def members(self) -> Iterator[StreamEntry]:
        """Its files, in their order."""
        entry, limits = self.entry, self.entry.limits
        place = count = total = 0
        long_name: str | None = None
        said_size: int | None = None
        while True:
            reader = self.take(place)
            header = reader.read(_BLOCK)
            if not header.strip(b"\0"):
                self.give_back(reader)
                if len(header) < _BLOCK:
                    entry.say(f"byte {place}", "the tar archive has no end; it may be cut off", lost=False)
                return
            try:
                info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                entry.say(f"byte {place}", f"the tar archive is broken: {error}; what follows is not read")
                return
            begin = place + _BLOCK
            size = info.size if info.type not in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE) else 0
            if info.isreg() and said_size is not None:
                size, said_size = said_size, None
            if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE):
                if size > _LONGEST_HEADER:
                    entry.say(f"byte {place}", "a header of the tar archive is too long; what follows is not read")
                    return
                data = reader.read(size)
                if info.type == tarfile.GNUTYPE_LONGNAME:
                    long_name = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
                elif info.type == tarfile.XHDTYPE:
                    long_name, said_size = _extended(data)
            self.give_back(reader)
            if info.isreg():
                name, long_name = _shown(long_name or info.name), None
                count, total = count + 1, total + size
                if count > limits.members or total > limits.archive_bytes:
                    over = f"{limits.members} members" if count > limits.members else f"{limits.archive_bytes} bytes"
                    entry.say(name, f"the archive has more than {over}; what follows is not read")
                    return
                if info.type == tarfile.GNUTYPE_SPARSE:
                    entry.say(name, "the member is stored with gaps, which is not read")
                elif not _left_out(name):
                    yield TarMember(self, name, begin, size)
            elif info.issym() or info.islnk():
                entry.say(_shown(long_name or info.name), "links in archives are not followed", lost=False)
                long_name = None
            place = begin + -(-size // _BLOCK) * _BLOCK

    def take(self, place: int) -> _Reader:
        """A reader that stands at `place`."""
        reader, self._reader = self._reader, None
        if reader is None or reader.position > place:
            reader = _Reader(self.entry)
        reader.skip_to(place)
        return reader

    def give_back(self, reader: _Reader) -> None:
        """Keep a reader for who goes on where it stands."""
        self._reader = reader

    def keep(self, member: TarMember, more: int) -> None:
        """A member keeps `more` bytes of its beginning; members that were not looked at for long let go of theirs."""
        self._kept[member.begin] = member
        self._kept.move_to_end(member.begin)
        self._kept_bytes += more
        while self._kept_bytes > _KEPT and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.kept)
            oldest.kept = b""


def _extended(data: bytes) -> tuple[str | None, int | None]:
    """Name and size that an extended header says, in records such as `25 path=folder/name\\n`."""
    name = size = None
    while data:
        length, space, _ = data.partition(b" ")
        if not space or not length.isdigit() or not 0 < int(length) <= len(data):
            break
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        if key == b"path":
            name = value.decode("utf-8", "surrogateescape")
        elif key == b"size" and value.isdigit():
            size = int(value)
        data = data[int(length) :]
    return name, size


class TarMember(StreamEntry):
    """One file of a tar archive, `begin` bytes from its start."""

    def __init__(self, archive: TarArchive, name: str, begin: int, size: int) -> None:
        super().__init__(f"{archive.entry.name}!{name}", size, limits=archive.entry.limits, note=archive.entry.note)
        self._archive = archive
        self.begin = begin
        self.kept = b""  # its beginning

    def _stream(self) -> Iterator[bytes]:
        given = 0
        if self.kept:
            kept = self.kept
            given = len(kept)
            yield kept
        while given < self.size:
            reader = self._archive.take(self.begin + given)
            piece = reader.some(min(CHUNK, self.size - given))
            # Given back at once: whoever reads on meanwhile only makes this one seek its place again.
            self._archive.give_back(reader)
            if not piece:
                raise BrokenOff(f"the archive ends {self.size - given} bytes before the member does")
            if len(self.kept) == given and given + len(piece) <= _KEPT_OF_MEMBER:
                self.kept += piece
                self._archive.keep(self, len(piece))
            given += len(piece)
            yield piece
