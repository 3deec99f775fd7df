"""Members of tar archives. One that is compressed can be read forward only."""

from __future__ import annotations

import tarfile
from collections import OrderedDict
from collections.abc import Iterator

from agentworld.ingest.files import StreamEntry
from agentworld.ingest.limits import MIB
from agentworld.ingest.members import LEADS_OUT, is_left_out, leads_out, shown
from agentworld.ingest.unpacking import CHUNK, BrokenOff

BLOCK = 512
_KEPT_OF_MEMBER = 4 * MIB
_KEPT = 64 * MIB
_LONGEST_HEADER = MIB
_DIGITS = 20  # of numbers in headers


def is_tar(start: bytes) -> bool:
    if len(start) < BLOCK:
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
        member = end = 0  # the place of the header before, and where what it announces ends
        while True:
            reader = self.take(place)
            if reader.position < end:
                why = f"the tar archive is broken: {end - reader.position} bytes that it announces are not there"
                entry.say(f"byte {member}", why)
                return
            member = place
            header = reader.read(BLOCK)
            if not header.strip(b"\0"):
                self.give_back(reader)
                if len(header) < BLOCK:
                    entry.say(f"byte {place}", "the tar archive has no end; it may be cut off", lost=False)
                return
            try:
                info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                entry.say(f"byte {place}", f"the tar archive is broken: {error}; what follows is not read")
                return
            begin = place + BLOCK
            size = info.size if info.type not in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE) else 0
            if info.isreg() and said_size is not None:
                size, said_size = said_size, None
            if info.size < 0 or size < 0:
                entry.say(f"byte {place}", "the tar archive is broken: a size is negative; what follows is not read")
                return
            if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE):
                if size > _LONGEST_HEADER:
                    entry.say(f"byte {place}", "a header of the tar archive is too long; what follows is not read")
                    return
                data = reader.read(size)
                if info.type == tarfile.GNUTYPE_LONGNAME:
                    long_name = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
                elif info.type == tarfile.XHDTYPE:
                    try:
                        long_name, said_size = _extended(data)
                    except ValueError as error:
                        entry.say(f"byte {place}", f"the tar archive is broken: {error}; what follows is not read")
                        return
            self.give_back(reader)
            if info.isreg():
                name, long_name = shown(long_name or info.name), None
                count, total = count + 1, total + size
                if count > limits.members or total > limits.archive_bytes:
                    over, hint = f"{limits.archive_bytes} bytes", "See --max-archive"
                    if count > limits.members:
                        over, hint = f"{limits.members} members", "See --max-members"
                    entry.say(name, f"the archive has more than {over}; what follows is not read", hint=hint)
                    return
                if info.type == tarfile.GNUTYPE_SPARSE:
                    entry.say(name, "the member is stored with gaps, which is not read")
                elif leads_out(name):
                    entry.say(name, LEADS_OUT)
                elif not is_left_out(name):
                    yield TarMember(self, name, begin, size)
            elif info.issym() or info.islnk():
                entry.say(shown(long_name or info.name), "links in archives are not followed", lost=False)
                long_name = None
            end = begin + size
            place = begin + -(-size // BLOCK) * BLOCK

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
    """Name and size that an extended header says, in records such as `25 path=folder/name\\n`; ValueError for numbers
    that are none.
    """
    name = size = None
    begin = 0
    while begin < len(data) and data[begin]:
        space = data.find(b" ", begin, begin + _DIGITS + 1)
        end = begin + _number(data[begin:space] if space > begin else b"", "a record of an extended header")
        if not space < end <= len(data):
            raise ValueError("a record of an extended header has no such length")
        key, _, value = data[space + 1 : end - 1].partition(b"=")
        if key == b"path":
            name = value.decode("utf-8", "surrogateescape")
        elif key == b"size":
            size = _number(value, "a size")
        begin = end
    return name, size


def _number(digits: bytes, of: str) -> int:
    if not digits.isdigit() or len(digits) > _DIGITS:
        raise ValueError(f"{of} is no number")
    return int(digits)


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
