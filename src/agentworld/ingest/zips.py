"""Members of zip archives, each found by the list at the archive's end."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from agentworld.ingest.entry import BadDocument
from agentworld.ingest.files import BytesEntry, DiskEntry, StreamEntry
from agentworld.ingest.members import LEADS_OUT, is_left_out, leads_out, shown
from agentworld.ingest.unpacking import CHUNK, RATIO_FROM, BrokenOff, grown, unpacked

ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_HEADER = 30  # before the name
_BYTES_OF_A_MEMBER = 512  # of a listing, with a long name
_END_OF_ZIP = struct.Struct("<4s4H2LH")
_ZIP_METHODS = {zipfile.ZIP_STORED: "", zipfile.ZIP_DEFLATED: "deflate", zipfile.ZIP_BZIP2: "bz2", 93: "zst", 20: "zst"}


def zip_members(entry: StreamEntry) -> Iterator[StreamEntry]:
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
            size = file.seek(0, io.SEEK_END)
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, struct.error, UnicodeError) as error:
        entry.say("$", f"the zip archive is broken: {error}")
        return
    total = 0
    apart = _apart(infos, size)
    if len(apart) < len(infos):
        overlapping = len(infos) - len(apart)
        why = f"the zip archive is broken: {overlapping} members lie over others or outside of it; they are not read"
        entry.say("$", why)
    for info in sorted(apart, key=lambda info: info.filename):
        if info.is_dir() or is_left_out(info.filename):
            continue
        name = shown(info.filename)
        if leads_out(name):
            entry.say(name, LEADS_OUT)
        elif info.flag_bits & 1:
            entry.say(name, "the member is encrypted")
        elif info.compress_type not in _ZIP_METHODS:
            entry.say(name, f"the member is compressed by the unknown method {info.compress_type}")
        elif total + info.file_size > limits.archive_bytes:
            why = f"the members are larger than {limits.archive_bytes} bytes; this one is not read"
            entry.say(name, why, hint="See --max-archive")
        elif total and total + info.file_size > max(RATIO_FROM, limits.archive_ratio * size):
            broken = grown(limits.archive_ratio)
            entry.say(name, f"with this member, {broken}", hint=broken.hint)
            return
        else:
            total += info.file_size
            yield ZipMember(entry, name, info, opened)


def _apart(infos: list[zipfile.ZipInfo], size: int) -> list[zipfile.ZipInfo]:
    """The members whose bytes are within the archive, and of no member before them."""
    apart = []
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset >= end:
            ends = info.header_offset + _HEADER + info.compress_size
            if ends <= size:
                end = ends
                apart.append(info)
    return apart


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
            why = f"a zip archive within another is larger than {entry.limits.document_bytes} bytes"
            entry.say("$", why, hint="See --max-document")
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
            header = file.read(_HEADER)
            if len(header) < _HEADER or not header.startswith(b"PK\x03\x04"):
                raise BrokenOff("the member has no header in the archive")
            name_length, extra_length = struct.unpack("<HH", header[26:30])
            file.seek(info.header_offset + _HEADER + name_length + extra_length)
            raw = _bounded(file, info.compress_size)
            method = _ZIP_METHODS[info.compress_type]
            pieces = unpacked(raw, method, self.limits.archive_ratio) if method else raw
            given = checksum = 0
            for piece in pieces:
                given += len(piece)
                if given > info.file_size:
                    raise BrokenOff(f"the member is larger than the {info.file_size} bytes that it announces")
                checksum = zlib.crc32(piece, checksum)
                yield piece
        if given < info.file_size:
            raise BrokenOff(f"the member ends after {given} of {info.file_size} bytes")
        if checksum != info.CRC:
            raise BrokenOff("its checksum is another: what was read is not what was stored")


def _bounded(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := file.read(min(size, CHUNK))):
        size -= len(chunk)
        yield chunk
