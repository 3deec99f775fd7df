"""Arrays as the columns hold them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentworld.forest import BLOCK_SIZE, TokenArray


def pack_ids(ids: TokenArray) -> bytes:
    """2, 3 or 4 little-endian bytes an id, as the largest needs: most vocabularies fit in 3, small ones in 2."""
    if not len(ids):
        return b""
    largest = int(ids.max())
    if largest < 1 << 16:
        return ids.astype("<u2").tobytes()
    if largest < 1 << 24:
        return np.ascontiguousarray(ids, dtype="<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return ids.astype("<u4", copy=False).tobytes()


def pack_blocks(blocks: Sequence[bytes]) -> list[bytes]:
    """Full blocks, each as 128 little-endian uint32, packed as `pack_ids` packs each."""
    ids = np.frombuffer(b"".join(blocks), dtype="<u4").reshape(-1, BLOCK_SIZE)
    largest = ids.max(axis=1)
    if int(largest.min()) >= 1 << 16 and int(largest.max()) < 1 << 24:
        data = ids.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
        width = 3 * BLOCK_SIZE
        return [data[at : at + width] for at in range(0, len(data), width)]
    return [pack_ids(row) for row in ids]


def pack_tails(tails: Sequence[bytes]) -> list[bytes]:
    """Sequences of little-endian uint32 of any length, each packed as `pack_ids` packs it."""
    lengths = [len(tail) for tail in tails]
    ids = np.frombuffer(b"".join(tails), dtype="<u4")
    if not len(ids) or min(lengths) == 0:
        return [pack_ids(np.frombuffer(tail, dtype="<u4")) for tail in tails]
    ends = np.cumsum(lengths) // 4
    starts = ends - np.asarray(lengths) // 4
    largest = np.maximum.reduceat(ids, starts)
    if int(largest.min()) >= 1 << 16 and int(largest.max()) < 1 << 24:
        data = ids.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
        return [data[3 * begin : 3 * end] for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return [pack_ids(ids[begin:end]) for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)]


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


def pack_mask(mask: npt.NDArray[np.uint8] | None) -> bytes | None:
    """The count as 4 bytes, then a bit each."""
    return None if mask is None else len(mask).to_bytes(4, "little") + np.packbits(mask).tobytes()


def unpack_mask(data: bytes | None) -> npt.NDArray[np.uint8] | None:
    """The mask of a packed column."""
    if data is None:
        return None
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8, offset=4), count=int.from_bytes(data[:4], "little"))


def pack_logprobs(logprobs: npt.NDArray[np.float32] | None) -> bytes | None:
    """Little-endian float32."""
    return None if logprobs is None else logprobs.astype("<f4", copy=False).tobytes()


def unpack_logprobs(data: bytes | None) -> npt.NDArray[np.float32] | None:
    """The log-probabilities of a packed column."""
    return None if data is None else np.frombuffer(data, dtype="<f4")
