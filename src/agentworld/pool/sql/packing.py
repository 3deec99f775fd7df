"""Arrays as the columns hold them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agentworld.forest import BLOCK_SIZE, TokenArray

_LEAST_PACKED = 64  # log-probabilities below which packing gains too little
_TABLE = 16
# Up to which Python's own bytes are packed sooner than numpy's arrays are made: tails, blocks, bytes of
# log-probabilities.
_FEW, _FEW_BLOCKS, _FEW_BYTES = 4, 2, 2048
_BLOCK_BYTES = 4 * BLOCK_SIZE
_FLOAT32 = np.dtype("<f4")


def pack_ids(ids: TokenArray) -> bytes:
    """2, 3 or 4 little-endian bytes an id, as the largest needs: most vocabularies fit in 3, small ones in 2."""
    if not len(ids):
        return b""
    largest = int(ids.max())
    if largest < 1 << 16:
        return ids.astype("<u2").tobytes()
    if largest < 1 << 24:
        return _lowest_three(ids)
    return ids.astype("<u4", copy=False).tobytes()


def pack_blocks(blocks: bytes) -> list[bytes]:
    """Full blocks, each as 128 little-endian uint32, packed as `pack_ids` packs each."""
    if len(blocks) <= _FEW_BLOCKS * _BLOCK_BYTES:
        return [_pack_few(blocks[at : at + _BLOCK_BYTES]) for at in range(0, len(blocks), _BLOCK_BYTES)]
    ids = np.frombuffer(blocks, dtype="<u4").reshape(-1, BLOCK_SIZE)
    used = np.bitwise_or.reduce(ids, axis=1).tolist()
    return _packed(ids, used, range(0, ids.size + 1, BLOCK_SIZE))


def pack_tails(tails: Sequence[bytes]) -> list[bytes]:
    """Sequences of little-endian uint32 of any length, each packed as `pack_ids` packs it."""
    if len(tails) <= _FEW:
        return [_pack_few(tail) for tail in tails]
    lengths = [len(tail) for tail in tails]
    ids = np.frombuffer(b"".join(tails), dtype="<u4")
    if not len(ids) or min(lengths) == 0:
        return [_pack_few(tail) for tail in tails]
    ends = [0, *itertools.accumulate([length // 4 for length in lengths])]
    return _packed(ids, np.bitwise_or.reduceat(ids, ends[:-1]).tolist(), ends)


def _packed(ids: TokenArray, used: Sequence[int], ends: Sequence[int]) -> list[bytes]:
    """The pieces of `ids` between two `ends` each. `used`: the bits that any id of each has."""
    most = max(used)
    if most >= 1 << 24:
        ids = ids.reshape(-1)
        return [pack_ids(ids[begin:end]) for begin, end in itertools.pairwise(ends)]
    # The bits are as large as the largest id, for all that asks how many bytes it needs.
    narrow = ids.astype("<u2").tobytes() if min(used) < 1 << 16 else b""
    wide = _lowest_three(ids) if most >= 1 << 16 else b""
    return [
        narrow[2 * begin : 2 * end] if bits < 1 << 16 else wide[3 * begin : 3 * end]
        for bits, (begin, end) in zip(used, itertools.pairwise(ends), strict=True)
    ]


def _pack_few(ids: bytes) -> bytes:
    """`pack_ids` of little-endian uint32, of which there are too few to set numpy to work."""
    third, fourth = ids[2::4], ids[3::4]
    nothing = bytes(len(third))
    if fourth != nothing:
        return ids
    width = 2 if third == nothing else 3
    packed = bytearray(width * len(third))
    packed[0::width], packed[1::width] = ids[0::4], ids[1::4]
    if width == 3:
        packed[2::3] = third
    return bytes(packed)


def _lowest_three(numbers: npt.NDArray[Any]) -> bytes:
    """The three lowest bytes of each number of four."""
    parts = np.ascontiguousarray(numbers, dtype=numbers.dtype.newbyteorder("<")).view(np.uint8).reshape(-1, 4)
    lowest = np.empty((len(parts), 3), dtype=np.uint8)
    for place in range(3):  # Column by column: numpy copies rows of three bytes five times as slowly.
        lowest[:, place] = parts[:, place]
    return lowest.tobytes()


def unpack_ids(data: bytes, count: int) -> TokenArray:
    """The `count` ids of a packed column."""
    if not count:
        return np.zeros(0, dtype="<u4")
    width = len(data) // count
    if width == 2:
        return np.frombuffer(data, dtype="<u2").astype("<u4")
    if width == 4:
        return np.frombuffer(data, dtype="<u4")
    wide = np.zeros((count, 4), dtype=np.uint8)
    wide[:, :3] = np.frombuffer(data, dtype=np.uint8).reshape(count, 3)
    return wide.reshape(-1).view("<u4")


def unpack_id_lists(packed: Sequence[bytes], counts: Sequence[int]) -> list[list[int]]:
    """As `unpack_ids` of each with its count, as lists; those of one width together."""
    of_width: dict[int, list[int]] = {2: [], 3: [], 4: []}
    found: list[list[int]] = [[] for _ in counts]
    for place, count in enumerate(counts):
        size = len(packed[place])
        width = size // count if count > 0 else 0
        if width in of_width and size == width * count:
            of_width[width].append(place)
        else:
            found[place] = unpack_ids(packed[place], count).tolist()
    for places in of_width.values():
        ids = unpack_ids(
            b"".join([packed[place] for place in places]), sum([counts[place] for place in places])
        ).tolist()
        at = 0
        for place in places:
            found[place] = ids[at : at + counts[place]]
            at += counts[place]
    return found


def pack_mask(mask: npt.NDArray[np.uint8] | None) -> bytes | None:
    """The count as 4 bytes, then a bit each."""
    return None if mask is None else len(mask).to_bytes(4, "little") + np.packbits(mask).tobytes()


def unpack_mask(data: bytes | None) -> npt.NDArray[np.uint8] | None:
    """The mask of a packed column."""
    if data is None:
        return None
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8, offset=4), count=int.from_bytes(data[:4], "little"))


def raw_logprobs(logprobs: npt.NDArray[np.float32] | None) -> bytes | None:
    """Little-endian float32, which digests are over."""
    if logprobs is None:
        return None
    return logprobs.tobytes() if logprobs.dtype is _FLOAT32 else logprobs.astype(_FLOAT32).tobytes()


def pack_logprobs(raws: Sequence[bytes]) -> list[bytes]:
    """`raw_logprobs` of several steps with sign and exponent of each number, but for its last bit, in 4 bits.

    Log-probabilities are of few magnitudes, so their highest bytes mostly take at most 16 values; those stand in a
    table. In order: three bytes of each number, two numbers a byte, the table, and in 5 bytes how long the table is and
    how many numbers there are. Where there are more values, or it would not be shorter, it stays raw. What is packed is
    never a whole number of float32 long, which is how the two are told apart.
    """
    if sum(map(len, raws)) <= _FEW_BYTES:
        return _pack_few_logprobs(raws)
    parts = np.frombuffer(b"".join(raws), dtype=np.uint8).reshape(-1, 4)
    highest = np.ascontiguousarray(parts[:, 3])
    table = np.flatnonzero(np.bincount(highest, minlength=256))
    if len(table) > _TABLE:
        # One step with unusual numbers leaves the others theirs.
        return list(raws) if len(raws) == 1 else [packed for raw in raws for packed in pack_logprobs([raw])]
    place = np.zeros(256, dtype=np.uint8)
    place[table] = np.arange(len(table), dtype=np.uint8)
    counts = [len(raw) // 4 for raw in raws]
    low, high = _lowest_three(parts), np.take(place, highest)
    if any(count % 2 for count in counts):
        # Each step's numbers begin a byte of their own.
        ends = itertools.accumulate(counts)
        whole = high.tobytes()
        aligned = [whole[end - count : end] + b"\0" * (count % 2) for count, end in zip(counts, ends, strict=True)]
        high = np.frombuffer(b"".join(aligned), dtype=np.uint8)
    pairs = ((high[0::2] << 4) | high[1::2]).tobytes()
    suffix = table.astype(np.uint8).tobytes()
    packed, begin, pair = [], 0, 0
    for raw, count in zip(raws, counts, strict=True):
        end, pair_end = begin + count, pair + (count + 1) // 2
        if count < _LEAST_PACKED:
            packed.append(raw)
        else:
            # One byte of padding where the length would be that of raw numbers.
            padding = b"" if (3 * count + pair_end - pair + len(suffix) + 5) % 4 else b"\0"
            ending = len(suffix).to_bytes(1, "little") + count.to_bytes(4, "little")
            packed.append(b"".join((low[3 * begin : 3 * end], pairs[pair:pair_end], suffix, padding, ending)))
        begin, pair = end, pair_end
    return packed


def _pack_few_logprobs(raws: Sequence[bytes]) -> list[bytes]:
    """`pack_logprobs` of so few that setting numpy to work would take longer than the work."""
    table = bytes(sorted(set(b"".join([raw[3::4] for raw in raws]))))
    if len(table) > _TABLE:
        return list(raws) if len(raws) == 1 else [packed for raw in raws for packed in _pack_few_logprobs([raw])]
    low = bytes.maketrans(table, bytes(range(len(table))))
    high = bytes.maketrans(table, bytes(range(0, 16 * len(table), 16)))
    packed = []
    for raw in raws:
        count = len(raw) // 4
        if count < _LEAST_PACKED:
            packed.append(raw)
            continue
        highest = raw[3::4]
        halves = (count + 1) // 2
        # All pairs at once, as one number of so many bytes.
        first = int.from_bytes(highest[0::2].translate(high), "little")
        second = int.from_bytes(highest[1::2].translate(low), "little")
        three = bytearray(3 * count)
        three[0::3], three[1::3], three[2::3] = raw[0::4], raw[1::4], raw[2::4]
        padding = b"" if (3 * count + halves + len(table) + 5) % 4 else b"\0"
        ending = len(table).to_bytes(1, "little") + count.to_bytes(4, "little")
        packed.append(b"".join((three, (first | second).to_bytes(halves, "little"), table, padding, ending)))
    return packed


def unpack_logprobs(data: bytes | None) -> npt.NDArray[np.float32] | None:
    """The log-probabilities of a packed column."""
    if data is None or len(data) % 4 == 0:
        return None if data is None else np.frombuffer(data, dtype="<f4")
    count, size = int.from_bytes(data[-4:], "little"), data[-5]
    halves = (count + 1) // 2
    pairs = np.frombuffer(data, dtype=np.uint8, count=halves, offset=3 * count)
    table = np.frombuffer(data, dtype=np.uint8, count=size, offset=3 * count + halves)
    nibbles = np.empty(2 * halves, dtype=np.uint8)
    nibbles[0::2] = pairs >> 4
    nibbles[1::2] = pairs & 15
    parts = np.empty((count, 4), dtype=np.uint8)
    parts[:, :3] = np.frombuffer(data, dtype=np.uint8, count=3 * count).reshape(count, 3)
    parts[:, 3] = table[nibbles[:count]]
    return parts.reshape(-1).view("<f4")


def unpack_logprob_lists(packed: Sequence[bytes | None]) -> list[list[float | None] | None]:
    """As `unpack_logprobs` of each, as lists with None for NaN; all of them together."""
    found: list[list[float | None] | None] = [None] * len(packed)
    raws: list[bytes] = []
    places: list[int] = []
    folded = [place for place, data in enumerate(packed) if data is not None and len(data) % 4]
    unfolded = dict(zip(folded, _unfolded([packed[place] or b"" for place in folded]), strict=True))
    for place, data in enumerate(packed):
        if data is not None:
            places.append(place)
            raws.append(unfolded.get(place, data))
    numbers = np.frombuffer(b"".join(raws), dtype="<f4")
    has_gaps = bool(np.isnan(numbers).any())
    values = numbers.tolist()
    at = 0
    for place, raw in zip(places, raws, strict=True):
        own: list[float | None] = values[at : at + len(raw) // 4]
        found[place] = [None if number != number else number for number in own] if has_gaps else own
        at += len(raw) // 4
    return found


def _unfolded(folded: Sequence[bytes]) -> list[bytes]:
    """Little-endian float32 of each that `pack_logprobs` did not leave raw."""
    if not folded:
        return []
    counts = [int.from_bytes(data[-4:], "little") for data in folded]
    halves = [(count + 1) // 2 for count in counts]
    sizes = [data[-5] for data in folded]
    are_whole = True
    low, pairs, tables = [], [], []
    for data, count, half, size in zip(folded, counts, halves, sizes, strict=True):
        low += [data[: 3 * count], bytes(3 * (count % 2))]  # Of a number more where they are odd, as there are nibbles.
        pairs.append(data[3 * count : 3 * count + half])
        tables.append(data[3 * count + half : 3 * count + half + size])
        are_whole &= 3 * count + half + size + 5 <= len(data)
    if are_whole:
        joined = np.frombuffer(b"".join(pairs), dtype=np.uint8)
        nibbles = np.empty(2 * len(joined), dtype=np.intp)
        nibbles[0::2] = joined >> 4
        nibbles[1::2] = joined & 15
        size_of, begin_of = (np.repeat(each, [2 * half for half in halves]) for each in (sizes, _begins(sizes)))
    if not are_whole or np.any(nibbles >= size_of):
        # One of them is damaged, and is to say so.
        return [unpack_logprobs(data).tobytes() for data in folded]  # type: ignore[union-attr]  # None is of None alone.
    parts = np.empty((len(nibbles), 4), dtype=np.uint8)
    parts[:, :3] = np.frombuffer(b"".join(low), dtype=np.uint8).reshape(-1, 3)
    parts[:, 3] = np.frombuffer(b"".join(tables), dtype=np.uint8)[nibbles + begin_of]
    whole = parts.tobytes()
    return [whole[8 * begin : 8 * begin + 4 * count] for begin, count in zip(_begins(halves), counts, strict=True)]


def _begins(lengths: Sequence[int]) -> list[int]:
    """Where each of the pieces begins, one behind the other."""
    return [0, *itertools.accumulate(lengths)][:-1]
