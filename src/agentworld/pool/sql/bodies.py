"""Message bodies and tool sets, compressed.

The messages of a conversation are much alike, and each alone is too short to compress well. So a conversation's new
nodes are segments of one zstd frame that is never closed: a node either begins a frame (`STARTS`) or continues the one
that its parent ends in (`CONTINUES`), and a body is read by decompressing the segments on the path to it. Each node is
continued by one child at most; any other child begins a frame, and so does whatever follows where the writer no longer
has its parent's state. A body that would not get shorter is kept as it is (`PLAIN`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple, TypeVar

import zstandard

from agentworld.errors import PoolError

T = TypeVar("T")

PLAIN, STARTS, CONTINUES = 0, 1, 2
# A window of 64 KiB and small tables: about 530 KB of state for each open conversation.
_PARAMETERS = zstandard.ZstdCompressionParameters.from_level(
    3, window_log=16, hash_log=15, chain_log=15, write_content_size=False, write_checksum=False
)
_OPEN_FRAMES = 128
_RESTORE = "Restore it from a backup; `agentworld pool check` names all that is wrong"


class Body(NamedTuple):
    """A node as its row has it."""

    parent: int | None
    coding: int
    data: bytes


class _Frame(NamedTuple):
    """An open frame, and what has its memory: one frame at a time."""

    compressor: zstandard.ZstdCompressor
    state: zstandard.ZstdCompressionObj


class BodyWriter:
    """Compresses new nodes; used by the writing thread only. `limit`: how many conversations' states are kept."""

    def __init__(self, limit: int = _OPEN_FRAMES) -> None:
        self._limit = limit
        self._frames: OrderedDict[int, _Frame] = OrderedDict()
        self._free: list[zstandard.ZstdCompressor] = []  # whose frames have ended; their memory is used again

    def pack(self, row: int, parent: int | None, body: bytes) -> tuple[int, bytes]:
        """Coding and data of the new node `row`."""
        frame = self._frames.pop(parent, None) if parent is not None else None
        coding = CONTINUES
        if frame is None:
            frame, coding = self._begin(), STARTS
        data = frame.state.compress(body) + frame.state.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        if coding == STARTS and len(data) >= len(body):
            self._free.append(frame.compressor)
            return PLAIN, body
        self._frames[row] = frame
        return coding, data

    def leave(self, parent: int | None) -> None:
        """Nothing goes on from the nodes so far, but perhaps from `parent`. The memory of the latest is used next."""
        kept = self._frames.pop(parent, None) if parent is not None else None
        self.clear()
        if kept is not None and parent is not None:
            self._frames[parent] = kept

    def clear(self) -> None:
        """Forget all states: their nodes may not be there, or their numbers may come to name others."""
        self._free += [frame.compressor for frame in self._frames.values()]
        self._frames.clear()
        del self._free[self._limit :]

    def _begin(self) -> _Frame:
        if len(self._frames) >= self._limit:
            compressor = self._frames.popitem(last=False)[1].compressor
        elif self._free:
            compressor = self._free.pop()
        else:
            compressor = zstandard.ZstdCompressor(compression_params=_PARAMETERS)
        return _Frame(compressor, compressor.compressobj())


class BodyReader:
    """Decompresses nodes; what several paths share is decompressed once.

    `forgetful`: for a walk over all nodes, parents first. Bodies are not kept, and of open frames only the latest are;
    where `holds` says no, `path` of the parent opens its frame again.
    """

    def __init__(self, forgetful: bool = False) -> None:
        self._forgetful = forgetful
        self._bodies: dict[int, bytes] = {}
        self._frames: OrderedDict[int, zstandard.ZstdDecompressionObj] = OrderedDict()

    def path(self, end: int, nodes: Mapping[int, Body]) -> list[bytes]:
        """The bodies from the root to the node `end`; `nodes` holds every node on the way."""
        return self.path_from((), end, nodes)[1]

    def path_from(self, known: Container[int], end: int, nodes: Mapping[int, Body]) -> tuple[int | None, list[bytes]]:
        """The nearest of the `known` nodes on the way from `end` to the root, None without one, and the bodies behind
        it to `end`. What is known was read before.
        """
        rows: list[int] = []
        at: int | None = end
        while at is not None and at not in known:
            rows.append(at)
            if at not in nodes:
                raise PoolError(
                    f"the pool is damaged: row {at}, which others build on, is missing",
                    hint=_RESTORE,
                )
            at = nodes[at].parent
        return at, [self.body(row, nodes[row]) for row in reversed(rows)]

    def holds(self, node: Body) -> bool:
        """Whether the node can be read without its path."""
        return node.coding != CONTINUES or node.parent in self._frames

    def body(self, row: int, node: Body) -> bytes:
        """The body of a node whose parent was read before."""
        known = self._bodies.get(row)
        if known is None:
            known = self._decompressed(row, node)
            if not self._forgetful:
                self._bodies[row] = known
        return known

    def _decompressed(self, row: int, node: Body) -> bytes:
        if node.coding == PLAIN:
            return bytes(node.data)
        if node.coding == CONTINUES:
            frame = self._frames.pop(node.parent or 0, None)
        elif node.coding == STARTS:
            frame = zstandard.ZstdDecompressor().decompressobj()
        else:
            frame = None
        if frame is None:
            raise _damaged(row, f"coding {node.coding} under node {node.parent}")
        try:
            body = frame.decompress(node.data)
        except zstandard.ZstdError as error:
            raise _damaged(row, str(error)) from None
        self._frames[row] = frame
        if self._forgetful and len(self._frames) > 2 * _OPEN_FRAMES:
            self._frames.popitem(last=False)
        return body


def read_paths(ends: Iterable[int], nodes: Mapping[int, Body], read: Callable[[bytes], T]) -> dict[int, list[T]]:
    """For each end, what `read` makes of the bodies from the root to it. Each body is read once."""
    reader = BodyReader()
    paths: dict[int, list[T]] = {}
    for end in sorted(ends):  # Parents are older, so that a path begins with the nearest one that was read.
        known, bodies = reader.path_from(paths, end, nodes)
        paths[end] = [*(paths[known] if known is not None else ()), *map(read, bodies)]
    return paths


def pack_alone(body: bytes) -> tuple[int, bytes]:
    """Coding and data of a tool set."""
    # One for each call: it lets go of the interpreter's lock as it works, and every pool has a writing thread.
    data = zstandard.ZstdCompressor(level=9, write_content_size=True, write_checksum=False).compress(body)
    return (STARTS, data) if len(data) < len(body) else (PLAIN, body)


def unpack_alone(coding: int, data: bytes) -> bytes:
    """The tool set of `pack_alone`."""
    if coding == PLAIN:
        return bytes(data)
    try:
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise PoolError(f"the pool is damaged: a tool set cannot be read: {error}", hint=_RESTORE) from None


def _damaged(row: int, what: str) -> PoolError:
    return PoolError(f"the pool is damaged: message node {row} cannot be read: {what}", hint=_RESTORE)
