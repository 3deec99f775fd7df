"""The token forest: sequences of vocabulary ids as hash chains of fixed blocks.

A block is identified by its parent block, its 128 ids and the digests of the media whose placeholders stand in it; the
chain is rooted at the digest of the vocabulary, since equal ids of two vocabularies are not equal text. Full blocks are
stored once whoever sends them; what does not fill a block stays with the step as its tail.
"""

from __future__ import annotations

import functools
import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.records.ids import DIGEST_SIZE, digest

BLOCK_SIZE = 128
TokenArray = npt.NDArray[np.uint32]
_NO_IDS = "token ids must be integers from 0 to 4294967295"
_unbegun = hashlib.blake2b(digest_size=DIGEST_SIZE)  # copied for each block, which is quicker than making one
_UINT32 = np.dtype("<u4")
_WIDTH = BLOCK_SIZE * 4  # bytes of a block


class Block(NamedTuple):
    """One full block: 16-byte digests and its ids as 128 little-endian uint32."""

    digest: bytes
    parent: bytes
    ids: bytes


class TokenPath(NamedTuple):
    """Where a sequence lies in the forest: its full blocks' digests in order, then the unfilled tail."""

    root: bytes
    digests: tuple[bytes, ...]
    tail: TokenArray
    length: int


class TokenPlan(NamedTuple):
    """A path and those of its blocks that the tip did not hold already."""

    path: TokenPath
    new_blocks: list[Block]


@functools.lru_cache(maxsize=1024)
def vocabulary_root(vocabulary: str | None) -> bytes:
    """The root of all sequences over one vocabulary, named by its digest (or by any stable name)."""
    return digest(b"vocabulary", (vocabulary or "").encode("utf-8", "surrogatepass"))


def token_array(ids: Sequence[int] | TokenArray) -> TokenArray:
    """`ids` as uint32; InvalidRequestError where one is not an id (below 0 or 2**32 and over, or no integer)."""
    if isinstance(ids, np.ndarray) and ids.dtype == _UINT32 and ids.ndim == 1:
        return ids if ids.flags.c_contiguous else np.ascontiguousarray(ids)
    if ids.__class__ is list:
        return joined_ids(ids)
    if isinstance(ids, list | tuple):
        try:
            return np.frombuffer(array("I", ids), dtype=np.uint32).astype(_UINT32, copy=False)
        except (OverflowError, TypeError, ValueError):
            raise InvalidRequestError(_NO_IDS, path="prompt_ids") from None
    try:
        wide = np.asarray(ids)
    except (OverflowError, ValueError):
        raise InvalidRequestError(_NO_IDS, path="prompt_ids") from None
    if wide.size == 0:
        return np.zeros(0, dtype="<u4")
    if wide.ndim != 1 or wide.dtype.kind not in "iu" or int(wide.min()) < 0 or int(wide.max()) > 0xFFFFFFFF:
        raise InvalidRequestError(_NO_IDS, path="prompt_ids")
    return wide.astype("<u4", copy=False)


def joined_ids(*parts: list[int]) -> TokenArray:
    """Lists of ids one after the other, as `token_array` makes of one."""
    # Checks as it converts, and keeps the interpreter's lock, for which it would wait after a loop of numpy's.
    joined = array("I")
    try:
        for part in parts:
            joined.fromlist(part)
    except (OverflowError, TypeError, ValueError):
        raise InvalidRequestError(_NO_IDS, path="prompt_ids") from None
    ids: TokenArray = np.frombuffer(joined, dtype=np.uint32)
    return ids if _UINT32.isnative else ids.astype(_UINT32)


def common_prefix(first: TokenArray, second: TokenArray) -> int:
    """How many ids the two sequences share from the start."""
    length = min(len(first), len(second))
    differing = np.flatnonzero(first[:length] != second[:length])
    return int(differing[0]) if differing.size else length


def plan_tokens(
    root: bytes,
    ids: TokenArray,
    tip: tuple[TokenPath, TokenArray] | None = None,
    media: Mapping[int, bytes] | None = None,
) -> TokenPlan:
    """Cut `ids` into blocks.

    `tip`: a stored sequence with the same root; its blocks are taken over as far as both agree, so only what is new is
    hashed. `media`: digest of the medium whose placeholder begins at a position; with media the tip is not used.
    """
    digests: list[bytes] = []
    if tip is not None and not media and tip[0].root == root:
        shared_blocks = common_prefix(ids, tip[1]) // BLOCK_SIZE
        digests.extend(tip[0].digests[:shared_blocks])
    new_blocks: list[Block] = []
    parent = digests[-1] if digests else root
    full = len(ids) // BLOCK_SIZE
    data = np.ascontiguousarray(ids, dtype="<u4").tobytes()
    width = BLOCK_SIZE * 4
    for number in range(len(digests), full):
        payload = data[number * width : (number + 1) * width]
        own = _block_digest(parent, payload, _media_in_block(media, number) if media else b"")
        new_blocks.append(Block(own, parent, payload))
        digests.append(own)
        parent = own
    tail = np.frombuffer(data[full * width :], dtype="<u4")
    return TokenPlan(TokenPath(root, tuple(digests), tail, len(ids)), new_blocks)


def hash_blocks(parent: bytes, data: bytes) -> list[bytes]:
    """The digests of the full blocks of `data` (ids as little-endian uint32) that follow the block or root `parent`."""
    digests, begun = [], _unbegun.copy
    for begin in range(0, len(data) - _WIDTH + 1, _WIDTH):
        hashed = begun()
        hashed.update(parent + data[begin : begin + _WIDTH])
        parent = hashed.digest()
        digests.append(parent)
    return digests


def _block_digest(parent: bytes, ids: bytes, media: bytes) -> bytes:
    # Fixed widths (16, 512, then 20 a medium) frame the parts.
    return hashlib.blake2b(parent + ids + media, digest_size=DIGEST_SIZE).digest()


def _media_in_block(media: Mapping[int, bytes], number: int) -> bytes:
    begin, end = number * BLOCK_SIZE, (number + 1) * BLOCK_SIZE
    inside = sorted(position for position in media if begin <= position < end)
    return b"".join((position - begin).to_bytes(4, "big") + media[position] for position in inside)
