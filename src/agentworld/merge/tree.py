"""The token tree of a batch: every token once that sequences share from their beginning on.

Built by sorting: sequences in lexicographic order, and of each only what follows the longest prefix that it shares
with the one before. That order is a preorder of the tree, so that a subtree is an interval of it, and a token's
interval says which tokens may attend to it. Building takes O(N) memory and, for sequences that share much, little more
than reading them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError

Ids = npt.NDArray[np.int64] | npt.NDArray[np.int32] | npt.NDArray[np.uint32]
_MOST_TOKENS = 2**31 - 1
_FIRST_COMPARED, _THEN_COMPARED = 256, 8192  # bytes of sequences that are sorted by a stretch


class TreeStatistics(NamedTuple):
    """`total`: tokens of all sequences; `unique`: of the tree; `ratio`: total by unique, 1 for nothing. `depth`: of the
    longest path in tokens; `leaves`: paths that no other goes on; `forks`: tokens (or the root) with several children.
    """

    sequences: int
    total: int
    unique: int
    ratio: float
    depth: int
    leaves: int
    forks: int


@dataclass(frozen=True, eq=False, slots=True)
class TokenTree:
    """A forest in preorder of U tokens, and where the N tokens of S sequences are in it.

    `tokens` uint32[U]; `parent` int32[U], -1 for a root; `depth` int32[U] from 0, which is the position id of the
    token on each path; `end` int32[U]: the subtree of token t is the interval t to end[t], so t may be attended to by
    exactly these. `offsets` int64[S + 1]: where sequences begin in flat arrays, in the order in which they were given;
    `index` int32[N]: the token in the tree of each flat token. `order` int64[S]: the sequences in lexicographic order;
    `shared` int64[S]: how many tokens each of that order shares with the one before it.
    """

    tokens: npt.NDArray[np.uint32]
    parent: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    index: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64]
    shared: npt.NDArray[np.int64]

    def path(self, sequence: int) -> npt.NDArray[np.int32]:
        """The tokens in the tree of one sequence, int32[length]; a view."""
        return self.index[self.offsets[sequence] : self.offsets[sequence + 1]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each sequence, int64[S]."""
        return np.diff(self.offsets)

    def uses(self) -> npt.NDArray[np.int64]:
        """How many sequences go through each token, int64[U]."""
        return np.bincount(self.index, minlength=len(self.tokens))

    def children(self) -> npt.NDArray[np.int64]:
        """How many children each token has, int64[U]; roots are counted for nobody."""
        return np.bincount(self.parent[self.parent >= 0], minlength=len(self.tokens))

    def statistics(self) -> TreeStatistics:
        """What merging saves here."""
        total, unique = len(self.index), len(self.tokens)
        children = self.children()
        roots = int(np.count_nonzero(self.parent < 0))
        return TreeStatistics(
            sequences=len(self.offsets) - 1,
            total=total,
            unique=unique,
            ratio=total / unique if unique else 1.0,
            depth=int(self.depth.max()) + 1 if unique else 0,
            leaves=int(np.count_nonzero(children == 0)),
            forks=int(np.count_nonzero(children > 1)) + (roots > 1),
        )


def build_tree(
    ids: Ids | Sequence[Ids] | Sequence[Sequence[int]],
    offsets: npt.NDArray[np.int64] | None = None,
    *,
    distinct: npt.NDArray[np.integer] | None = None,
) -> TokenTree:
    """The tree of sequences: a list of arrays, or their ids one after the other, [N], with `offsets` [S + 1].

    `distinct` [N] of 0 to 2^32 - 1: tokens are the same only where this is equal as well, such as for placeholders of
    different images. Sequences may be empty, equal, or each other's prefixes; what is in vocabularies of its own does
    not go into one tree.
    """
    flat, bounds = _flat(ids, offsets)
    if distinct is not None and len(distinct) != len(flat):
        raise InvalidRequestError(f"distinct has {len(distinct)} values for {len(flat)} ids", path="distinct")
    index = np.empty(len(flat), dtype=np.int32)
    order = _sorted(flat, bounds, distinct, index)
    shared = _shared(flat, bounds, distinct, order)
    return _laid_out(flat, bounds, order, shared, index)


def _flat(
    ids: Ids | Sequence[Ids] | Sequence[Sequence[int]], offsets: npt.NDArray[np.int64] | None
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    if offsets is None:
        parts = [np.asarray(each) for each in ids]
        bounds = np.zeros(len(parts) + 1, dtype=np.int64)
        np.cumsum([len(part) for part in parts], out=bounds[1:])
        flat = np.concatenate([part for part in parts if len(part)]) if bounds[-1] else np.zeros(0, dtype=np.uint32)
    else:
        flat, bounds = np.asarray(ids), np.asarray(offsets, dtype=np.int64)
        if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != len(flat) or np.any(np.diff(bounds) < 0):
            raise InvalidRequestError(
                "offsets ascend from 0 to the number of ids", path="offsets", hint="One more than there are sequences"
            )
    if flat.ndim != 1 or (len(flat) and flat.dtype.kind not in "iu"):
        raise InvalidRequestError(f"ids are whole numbers in one row, not {flat.dtype} of {flat.ndim} dimensions")
    if len(flat) > _MOST_TOKENS:
        raise InvalidRequestError(f"{len(flat)} tokens in one tree, at most {_MOST_TOKENS}", hint="Divide the batch")
    if flat.dtype != np.uint32:
        if len(flat) and (int(flat.min()) < 0 or int(flat.max()) >= 2**32):
            raise InvalidRequestError("ids are from 0 to 4294967295", path="ids")
        flat = flat.astype(np.uint32)
    return flat, bounds


def _sorted(
    flat: npt.NDArray[np.uint32],
    bounds: npt.NDArray[np.int64],
    distinct: npt.NDArray[np.integer] | None,
    room: npt.NDArray[np.int32],
) -> list[int]:
    """Sequences in lexicographic order of their tokens, equal ones as they were given. `room` [N] is written over.

    They are compared as big-endian bytes, which is as numbers do, a stretch at a time and further on only where
    stretches are equal: keys of whole sequences would take as much new memory as all of them, which costs more than
    sorting does where the allocator has to ask for it.
    """
    if distinct is None:
        ordered, width = room.view(">u4"), 4
        ordered[:] = flat
    else:
        ordered, width = np.stack([flat, distinct.astype(np.uint32)], axis=1).astype(">u4"), 8
    raw = ordered.view(np.uint8).reshape(-1).data
    cuts = (bounds * width).tolist()
    order: list[int] = []
    todo = [(list(range(len(cuts) - 1)), 0, _FIRST_COMPARED)]  # equal up to this many bytes; what comes next is last
    while todo:
        group, depth, reach = todo.pop()
        if reach == depth:
            order += group
            continue
        keys = {each: raw[cuts[each] + depth : min(cuts[each] + reach, cuts[each + 1])].tobytes() for each in group}
        group.sort(key=keys.__getitem__)
        parts: list[tuple[list[int], int, int]] = []
        done: list[int] = []
        for key, equal in itertools.groupby(group, key=keys.__getitem__):
            own = list(equal)
            # Where they are shorter they end, so that all of them are one sequence.
            if len(own) == 1 or len(key) < reach - depth:
                done += own
                continue
            parts += [(done, 0, 0), (own, reach, reach + _THEN_COMPARED)]
            done = []
        todo += [(done, 0, 0), *reversed(parts)]
    return order


def _shared(
    flat: npt.NDArray[np.uint32],
    bounds: npt.NDArray[np.int64],
    distinct: npt.NDArray[np.integer] | None,
    order: list[int],
) -> list[int]:
    """The length of the longest prefix that each sequence, in that order, shares with the one before."""
    begin = bounds.tolist()
    shared = [0] * len(order)
    for place in range(1, len(order)):
        before, own = begin[order[place - 1]], begin[order[place]]
        most = min(begin[order[place - 1] + 1] - before, begin[order[place] + 1] - own)
        if not most:
            continue
        differs = flat[before : before + most] != flat[own : own + most]
        if distinct is not None:
            differs |= distinct[before : before + most] != distinct[own : own + most]
        first = int(differs.argmax())
        shared[place] = first if differs[first] else most
    return shared


def _laid_out(
    flat: npt.NDArray[np.uint32],
    bounds: npt.NDArray[np.int64],
    order: list[int],
    shared: list[int],
    index: npt.NDArray[np.int32],
) -> TokenTree:
    begin = bounds.tolist()
    unique = int(bounds[-1]) - sum(shared)
    tokens = np.empty(unique, dtype=np.uint32)
    parent = np.arange(-1, unique - 1, dtype=np.int32)
    depth = np.empty(unique, dtype=np.int32)
    end = np.empty(unique, dtype=np.int32)
    counting = np.arange(max(unique, 1), dtype=np.int32)
    open_runs: list[tuple[int, int]] = []  # of the path to here: the depth at which a run begins, and its first token
    reached = 0  # tokens laid out so far
    reach = 0  # depth to which the path is open
    before = 0
    for sequence, prefix in zip(order, shared, strict=True):
        own, length = begin[sequence], begin[sequence + 1] - begin[sequence]
        # What is deeper than the shared prefix has its whole subtree behind it.
        while reach > prefix:
            top, first = open_runs[-1]
            cut = max(top, prefix)
            end[first + cut - top : first + reach - top] = reached
            reach = cut
            if cut == top:
                open_runs.pop()
        index[own : own + prefix] = index[before : before + prefix]
        new = length - prefix
        if new:
            tokens[reached : reached + new] = flat[own + prefix : own + length]
            depth[reached : reached + new] = counting[prefix:length] if length <= unique else np.arange(prefix, length)
            index[own + prefix : own + length] = counting[reached : reached + new]
            parent[reached] = index[own + prefix - 1] if prefix else -1
            open_runs.append((prefix, reached))
            reached += new
            reach = length
        before = own
    while reach > 0:
        top, first = open_runs.pop()
        end[first : first + reach - top] = reached
        reach = top
    ordered = np.array(order, dtype=np.int64)
    return TokenTree(tokens, parent, depth, end, bounds, index, ordered, np.array(shared, dtype=np.int64))
