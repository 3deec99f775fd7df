"""Compressed bytes as a stream of what they were: gzip, bzip2, xz, zstd and bare deflate, bounded in how they grow."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import zstandard

from agentworld.ingest.limits import MIB

CHUNK = 256 * 1024
RATIO_FROM = 16 * MIB


class BrokenOff(Exception):
    """The bytes end early: `str` says why, `hint` what to do."""

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.hint = hint


def grown(ratio: int) -> BrokenOff:
    """Of what is so many times larger than in the archive."""
    why = f"it grows to more than {ratio} times its compressed size; the rest is not read"
    return BrokenOff(why, "See --max-ratio")


class _Decompressor(Protocol):
    """What the libraries for gz, bz2 and xz have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


Packing = str  # gz, bz2, xz, zst or deflate
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}


def packing_of(start: bytes) -> Packing | None:
    """How a file is compressed, by its first bytes."""
    return next((packing for magic, packing in _MAGIC.items() if start.startswith(magic)), None)


def unpacked(chunks: Iterator[bytes], packing: Packing, ratio: int) -> Iterator[bytes]:
    """The bytes that were compressed, in pieces of at most 256 KiB; BrokenOff where they end early, or are over `ratio`
    times as many as they were.
    """
    taken = given = 0
    counted = _Counted(chunks)
    pieces = _unpacked_zst(counted) if packing == "zst" else _unpacked(counted, packing)
    for piece in pieces:
        given += len(piece)
        taken = counted.count
        if given > RATIO_FROM and given > ratio * max(taken, 1):
            raise grown(ratio)
        yield piece


class _Counted:
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.count += len(chunk)
            yield chunk


class _Zlib:
    """zlib's object, with the interface of the others."""

    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits=wbits)
        self._broken: zlib.error | None = None

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """What can be unpacked before an error is given first, as the library lets go of it."""
        if self._broken is not None:
            raise self._broken
        data = self._inner.unconsumed_tail + data
        before = self._inner.copy()
        try:
            return self._inner.decompress(data, max_length)
        except zlib.error as error:
            self._broken, given = error, bytearray()
            try:
                for at in range(len(data)):
                    given += before.decompress(data[at : at + 1])
            except zlib.error:
                pass
            if not given:
                raise
            return bytes(given)


_NEW: dict[str, Callable[[], _Decompressor]] = {
    "gz": lambda: _Zlib(31),
    "deflate": lambda: _Zlib(-15),
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=256 * MIB),
}


def _unpacked(chunks: _Counted, packing: Packing) -> Iterator[bytes]:
    """Streams may follow one another in a file, as gzip allows."""
    current: _Decompressor | None = None
    try:
        for chunk in chunks:
            data = chunk
            while data:
                if current is None:
                    current = _NEW[packing]()
                piece = current.decompress(data, CHUNK)
                while piece and not current.eof:
                    yield piece
                    piece = current.decompress(b"", CHUNK)
                if piece:
                    yield piece
                data = current.unused_data.lstrip(b"\0") if current.eof else b""
                if current.eof:
                    current = None
    except (zlib.error, OSError, lzma.LZMAError, EOFError) as error:
        raise BrokenOff(f"its compressed bytes are broken: {error}") from None
    if current is not None:
        raise BrokenOff("its compressed bytes end too early")


def _unpacked_zst(chunks: _Counted) -> Iterator[bytes]:
    ended = True
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=128 * MIB)
        current = None
        for chunk in chunks:
            data = chunk
            while data:
                if current is None:
                    current = reader.decompressobj(write_size=CHUNK)
                    ended = False
                # In slices, as what comes out of one call is not bounded otherwise.
                part, data = data[:1024], data[1024:]
                piece = current.decompress(part)
                if piece:
                    yield piece
                if current.eof:
                    data = current.unused_data + data
                    current, ended = None, True
    except zstandard.ZstdError as error:
        raise BrokenOff(f"its compressed bytes are broken: {error}") from None
    if not ended:
        raise BrokenOff("its compressed bytes end too early")
