"""Micro-batches of a token tree: under a budget, with as little computed twice as possible, even over ranks.

Sequences go in the tree's order, in which neighbours share most. A tree that is over the budget is cut between two of
them, where they share least: what they share is then computed in both parts. Cuts are the best of their kind (dynamic
programming over the order); parts are put together by best fit, the largest first.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.merge.tree import TokenTree

_FINER = (1, 2, 4)  # how much smaller than a micro-batch its parts are, where ranks are to be even


class MicroBatch(NamedTuple):
    """`sequences`: of the tree, in its order. `tokens`: computed, each shared one once. `attention`: pairs of a token
    and one that it attends to, itself included.
    """

    sequences: tuple[int, ...]
    tokens: int
    attention: int


class Packing(NamedTuple):
    """`ranks`: the micro-batches of each rank, equally many for all. `tokens`: computed in all; `bound`: what no
    packing is below, the tokens of the whole tree; `fewest`: micro-batches that are needed at least for so many.
    """

    ranks: tuple[tuple[MicroBatch, ...], ...]
    tokens: int
    bound: int
    fewest: int

    @property
    def micro_batches(self) -> list[MicroBatch]:
        """All of them, those of rank 0 first."""
        return [each for rank in self.ranks for each in rank]

    @property
    def balance(self) -> float:
        """Attention and tokens of the mean rank by those of the fullest, 1 for even; tokens weigh as much in all."""
        loads = [sum(_load(each, self._scale) for each in rank) for rank in self.ranks]
        return sum(loads) / len(loads) / max(loads) if max(loads, default=0) else 1.0

    @property
    def _scale(self) -> float:
        attention = sum(each.attention for each in self.micro_batches)
        return self.tokens / attention if attention else 0.0


def pack(
    tree: TokenTree, token_budget: int, *, attention_budget: int | None = None, ranks: int = 1, pad: bool = True
) -> Packing:
    """Divide the sequences of a tree into micro-batches of at most `token_budget` tokens and `attention_budget` pairs.

    Ranks get equally many: where there are too few, the fullest are divided, and where nothing can be divided any more,
    empty ones are added (without `pad`, InvalidRequestError). InvalidRequestError names a sequence that is over the
    budget by itself.
    """
    if token_budget < 1 or ranks < 1 or (attention_budget is not None and attention_budget < 1):
        raise InvalidRequestError("token_budget, attention_budget and ranks are whole numbers from 1")
    pairs = math.inf if attention_budget is None else attention_budget
    run = _Order(tree)
    run.check(token_budget, pairs)
    bins = run.bins(token_budget, pairs)
    if ranks > 1:
        bins = _even(run, bins, token_budget, pairs, ranks)
    bins = _divided(run, bins, ranks, pad)
    tokens = sum(each.tokens for each in bins)
    bound, all_pairs = len(tree.tokens), int(np.sum(tree.depth, dtype=np.int64)) + len(tree.tokens)
    fewest = max(math.ceil(bound / token_budget), math.ceil(all_pairs / pairs) if attention_budget else 0)
    return Packing(_dealt(bins, ranks), tokens, bound, fewest)


class _Order:
    """The sequences that have tokens, in the tree's order, with what each adds to those before it."""

    def __init__(self, tree: TokenTree) -> None:
        lengths = tree.lengths()[tree.order]
        there = lengths > 0
        self.sequences = tree.order[there].tolist()
        self.empty = tree.order[~there].tolist()
        self.lengths = lengths[there].tolist()
        self.shared = tree.shared[there].tolist()
        self._place = {sequence: place for place, sequence in enumerate(self.sequences)}
        new = lengths[there] - tree.shared[there]
        pairs = _pairs(lengths[there]) - _pairs(tree.shared[there])
        # Before each place: what those before it add, by tokens and by pairs.
        self.new = [0, *np.cumsum(new).tolist()]
        self.pairs = [0, *np.cumsum(pairs).tolist()]

    def check(self, tokens: int, pairs: float) -> None:
        for sequence, length in zip(self.sequences, self.lengths, strict=True):
            if length > tokens:
                raise InvalidRequestError(
                    f"sequence {sequence} has {length} tokens, over the budget of {tokens}",
                    path="token_budget",
                    hint="Raise the budget, or leave the sequence out",
                )
            if _pairs(length) > pairs:
                raise InvalidRequestError(
                    f"sequence {sequence} has {_pairs(length)} pairs of tokens, over the budget of {pairs}",
                    path="attention_budget",
                    hint="Raise the budget, or leave the sequence out",
                )

    def bins(self, tokens: int, pairs: float, finer: int = 1) -> list[MicroBatch]:
        """Micro-batches under the budget, as many as come of it; of parts that are `finer` times as small."""
        part = max(tokens // finer, max(self.lengths, default=1))
        parts = [each for group in self.groups() for each in self.cut(group, part, pairs)]
        return [self._of(sorted(map(self._place.__getitem__, found))) for found in _best_fit(parts, tokens, pairs)]

    def groups(self) -> list[tuple[int, int]]:
        """Places from and to of each tree of the forest."""
        begins = [place for place, shared in enumerate(self.shared) if shared == 0]
        return list(itertools.pairwise([*begins, len(self.shared)]))

    def part(self, begin: int, end: int) -> MicroBatch:
        """The sequences at these places, by themselves."""
        length = self.lengths[begin]
        return MicroBatch(
            tuple(self.sequences[begin:end]),
            length + self.new[end] - self.new[begin + 1],
            _pairs(length) + self.pairs[end] - self.pairs[begin + 1],
        )

    def cut(self, group: tuple[int, int], tokens: int, pairs: float) -> list[MicroBatch]:
        """A tree in parts under the budget that compute as little as possible, and among those the fewest.

        `best[k]` is that of the first k sequences. A part from i to k costs the more the earlier it begins, so that
        the places where the last part may begin are a window that only moves on, whose least is kept in a queue.
        """
        first, last = group
        best: list[tuple[int, int]] = [(0, 0)]
        begins: list[int] = []
        window: deque[tuple[tuple[int, int], int]] = deque()
        for end in range(first + 1, last + 1):
            own = end - 1
            before, parts = best[own - first]
            value = (before + self.shared[own], parts + 1)
            while window and window[-1][0] >= value:
                window.pop()
            window.append((value, own))
            while not self._fits(window[0][1], end, tokens, pairs):
                window.popleft()
            (lost, parts), begin = window[0]
            best.append((lost, parts))
            begins.append(begin)
        found = []
        end = last
        while end > first:
            begin = begins[end - 1 - first]
            found.append(self.part(begin, end))
            end = begin
        return found[::-1]

    def halves(self, batch: MicroBatch) -> tuple[MicroBatch, MicroBatch]:
        """A batch as two that are as even as can be."""
        at = [self._place[sequence] for sequence in batch.sequences]
        cuts = range(1, len(at))
        middle = min(cuts, key=lambda cut: max(self._of(at[:cut]).tokens, self._of(at[cut:]).tokens))
        return self._of(at[:middle]), self._of(at[middle:])

    def _of(self, places: Sequence[int]) -> MicroBatch:
        """Places in order, perhaps not next to each other: what two share is the least of what lies between them."""
        tokens = pairs = 0
        for at, own in enumerate(places):
            shared = min(self.shared[places[at - 1] + 1 : own + 1]) if at else 0
            tokens += self.lengths[own] - shared
            pairs += _pairs(self.lengths[own]) - _pairs(shared)
        return MicroBatch(tuple(self.sequences[own] for own in places), tokens, pairs)

    def _fits(self, begin: int, end: int, tokens: int, pairs: float) -> bool:
        _, own, own_pairs = self.part(begin, end)
        return own <= tokens and own_pairs <= pairs


_Length = TypeVar("_Length", int, npt.NDArray[np.int64])


def _pairs(length: _Length) -> _Length:
    return length * (length + 1) // 2


def _best_fit(parts: Sequence[MicroBatch], tokens: int, pairs: float) -> list[list[int]]:
    """Sequences of parts put together: each part, the largest first, where the least room is left after it."""
    found: list[list[int]] = []
    room: list[tuple[int, float]] = []
    for part in sorted(parts, key=lambda each: (-each.tokens, -each.attention)):
        fits = [
            (left - part.tokens, place)
            for place, (left, left_pairs) in enumerate(room)
            if part.tokens <= left and part.attention <= left_pairs
        ]
        if fits:
            place = min(fits)[1]
            found[place] += part.sequences
        else:
            place = len(found)
            found.append([*part.sequences])
            room.append((tokens, pairs))
        left, left_pairs = room[place]
        room[place] = (left - part.tokens, left_pairs - part.attention)
    return found


def _even(run: _Order, bins: list[MicroBatch], tokens: int, pairs: float, ranks: int) -> list[MicroBatch]:
    """As many steps, and each as small as can be: under the least budget that needs no more of them. Trees that are
    under it are cut too where that makes it less.
    """
    most = -(-len(bins) // ranks) * ranks
    for finer in _FINER:
        low, high = max(run.lengths, default=1), max((each.tokens for each in bins), default=1)
        while low < high:
            middle = (low + high) // 2
            found = run.bins(middle, pairs, finer)
            if len(found) <= most:
                bins, high = found, middle
            else:
                low = middle + 1
    return bins


def _divided(run: _Order, bins: list[MicroBatch], ranks: int, pad: bool) -> list[MicroBatch]:
    """As many as ranks can have equally many of; sequences without tokens go with the first."""
    while len(bins) % ranks:
        place = max(
            (place for place, each in enumerate(bins) if len(each.sequences) > 1),
            key=lambda place: (bins[place].tokens, bins[place].attention),
            default=None,
        )
        if place is None:
            if not pad:
                raise InvalidRequestError(
                    f"{len(bins)} micro-batches cannot be dealt evenly to {ranks} ranks", path="ranks"
                )
            bins += [MicroBatch((), 0, 0)] * (-len(bins) % ranks)
            break
        bins[place : place + 1] = run.halves(bins[place])
    if run.empty:
        first = bins[0] if bins else MicroBatch((), 0, 0)
        bins[:1] = [first._replace(sequences=(*first.sequences, *run.empty))]
        bins += [MicroBatch((), 0, 0)] * (-len(bins) % ranks)
    return bins


def _load(batch: MicroBatch, scale: float) -> float:
    return batch.tokens + scale * batch.attention


def _dealt(bins: Sequence[MicroBatch], ranks: int) -> tuple[tuple[MicroBatch, ...], ...]:
    """Equally many to each rank, the heaviest first, each to the rank that has least and room."""
    attention = sum(each.attention for each in bins)
    scale = sum(each.tokens for each in bins) / attention if attention else 0.0
    dealt: list[list[MicroBatch]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    most = len(bins) // ranks
    for each in sorted(bins, key=lambda batch: -_load(batch, scale)):
        rank = min((rank for rank in range(ranks) if len(dealt[rank]) < most), key=lambda rank: loads[rank])
        dealt[rank].append(each)
        loads[rank] += _load(each, scale)
    return tuple(tuple(rank) for rank in dealt)
