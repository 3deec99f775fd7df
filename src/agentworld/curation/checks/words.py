"""Words of a text as numbers, and runs of words, all in numpy: what near-duplicates and contamination compare.

A word is a run of letters, digits and underscores, in small letters; a character of a script that is written without
spaces (from U+2E80 on) is a word by itself, and so is U+0000, which texts are joined with where no run may cross.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

LONGEST = 1_000_000  # characters of one text that are read
BARRIER = "\0"
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_INVERSE = pow(_BASE, -1, 1 << 64)
_STEP = np.uint64(0xD6E8FEB86659FD93)
_SPACELESS = 0x2E80
# Punctuation and spaces over ASCII, as ranges of code points.
_BREAKS = ((0x80, 0xA9), (0xAB, 0xB4), (0xB6, 0xB9), (0xBB, 0xBF), (0x2000, 0x206F), (0x3000, 0x3003), (0x3008, 0x3020))


class Words(NamedTuple):
    """The hash of each word, and where it begins and ends in the text."""

    hashes: Hashes
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


def mix(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit of the input changes half of the output's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def words_of(text: str) -> Words:
    """The words of the first million characters."""
    codes = _codes(text[:LONGEST].lower())
    if not codes.size:
        nothing = np.empty(0, np.int64)
        return Words(np.empty(0, np.uint64), nothing, nothing)
    starts, ends = _bounds(codes)
    # A word's hash is the polynomial of its characters: a difference of two prefixes' sums, brought to the power 0.
    powers, inverses = _powers(1 << (len(codes) - 1).bit_length())
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(codes * powers[: len(codes)], out=sums[1:])
    polynomials = (sums[ends] - sums[starts]) * inverses[starts]
    return Words(mix(polynomials + (ends - starts).astype(np.uint64)), starts, ends)


def windows(text: str, size: int, count: int) -> Iterator[tuple[int, int]]:
    """Where the parts of a text begin and end that hold every run of `count` words whole, each of at most `size`
    characters: no part ends within a word, and the next one begins with the last `count - 1` words of the one before.
    A run of over `size` characters is in none.
    """
    begin = 0
    while len(text) - begin > size:
        starts, ends = _bounds(_codes(text[begin : begin + size]))
        end = size
        if len(ends) and ends[-1] == size:
            # That word may go on behind the part. One that is longer than a part is cut.
            end = int(starts[-1]) or size
            starts, ends = starts[:-1], ends[:-1]
        if len(starts) >= count > 1:
            following = int(starts[1 - count])
        else:
            # No run from the first word on fits, unless that was not at the beginning; of single words none goes on.
            following = int(starts[0] or ends[0]) if 0 < len(ends) < count else end
        yield begin, begin + end
        begin += following
    yield begin, len(text)


def ngrams(words: Hashes, count: int) -> Hashes:
    """The hash of each run of `count` words; none where there are fewer."""
    places = len(words) - count + 1
    if places <= 0:
        return np.empty(0, np.uint64)
    runs = words[:places].copy()
    for offset in range(1, count):
        runs *= _STEP
        runs += words[offset : offset + places]
    return mix(runs)


def _codes(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _bounds(codes: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where words begin and end; small letters are where the capital ones are."""
    inside, alone = _kinds(codes)
    before = np.zeros(len(codes), bool)
    before[1:] = inside[:-1] & ~alone[:-1]
    after = np.zeros(len(codes), bool)
    after[:-1] = inside[1:] & ~alone[1:]
    return np.flatnonzero(inside & (alone | ~before)), np.flatnonzero(inside & (alone | ~after)) + 1


def _kinds(codes: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which characters belong to words, and which of them are words by themselves."""
    table_inside, table_alone = _table()
    low = np.minimum(codes, np.uint32(len(table_inside) - 1))
    return table_inside[low], table_alone[low]


@functools.cache
def _table() -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """By code point up to U+FFFF; what is over that is as the last."""
    inside = np.zeros(1 << 16, bool)
    for code in range(128):
        inside[code] = chr(code).isalnum() or chr(code) == "_"
    inside[128:] = True
    for first, last in _BREAKS:
        inside[first : last + 1] = False
    inside[0] = True
    alone = np.zeros(1 << 16, bool)
    alone[_SPACELESS:] = inside[_SPACELESS:]
    alone[0] = True
    return inside, alone


@functools.lru_cache(maxsize=4)
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Powers of the base and of its inverse modulo 2**64, from 0 on."""
    powers = np.full(count, np.uint64(_BASE))
    inverses = np.full(count, np.uint64(_INVERSE))
    powers[0] = inverses[0] = 1
    np.cumprod(powers, out=powers)
    np.cumprod(inverses, out=inverses)
    return powers, inverses
