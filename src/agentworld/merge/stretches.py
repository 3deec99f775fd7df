"""A token tree in stretches: what lies between two places where it forks or sequences end. Pure numpy.

There are at most twice as many stretches as sequences, so what is shown or drawn of a tree is small however long its
sequences are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentworld.merge.tree import TokenTree

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Stretches:
    """K stretches in preorder, all int64[K]. `begin`, `end`: tokens of the tree; `depth`: of the first one. `parent`:
    the stretch that it goes on from, -1 for roots. `level`: how often its path branched off a fork's first branch.
    `sequences`: how many go through it. `last` int64[S]: the stretch that each sequence ends with, -1 for empty ones.
    """

    begin: Numbers
    end: Numbers
    depth: Numbers
    parent: Numbers
    level: Numbers
    sequences: Numbers
    last: Numbers

    def __len__(self) -> int:
        return len(self.begin)

    def lengths(self) -> Numbers:
        """Tokens of each, int64[K]."""
        return self.end - self.begin

    def children(self) -> Numbers:
        """How many go on from each, int64[K]."""
        return np.bincount(self.parent[self.parent >= 0], minlength=len(self)).astype(np.int64)

    def first(self) -> Numbers:
        """The first sequence, as they were given, that goes through each, int64[K]."""
        found = np.full(len(self), len(self.last), dtype=np.int64)
        ended = np.flatnonzero(self.last >= 0)
        np.minimum.at(found, self.last[ended], ended)
        # Children stand behind their parents, so each has its own least before it is handed up.
        for place in range(len(self) - 1, -1, -1):
            above = self.parent[place]
            if above >= 0 and found[place] < found[above]:
                found[above] = found[place]
        return found

    def below(self) -> Numbers:
        """Tokens of all sequences from the beginning of each stretch on, int64[K]: what it takes up where nothing is
        shared.
        """
        found = self.lengths() * self.sequences
        for place in range(len(self) - 1, -1, -1):
            if self.parent[place] >= 0:
                found[self.parent[place]] += found[place]
        return found


def stretches(tree: TokenTree) -> Stretches:
    """The stretches of a tree, in time and memory that are linear in its tokens."""
    unique = len(tree.tokens)
    nothing = np.zeros(0, dtype=np.int64)
    lengths = tree.lengths()
    last = np.full(len(lengths), -1, dtype=np.int64)
    if not unique:
        return Stretches(nothing, nothing, nothing, nothing, nothing, nothing, last)
    uses = tree.uses()
    cut = np.ones(unique, dtype=bool)
    # Fewer sequences go on behind a fork, and behind the end of one.
    cut[1:] = (tree.parent[1:] != np.arange(unique - 1)) | (uses[1:] != uses[:-1])
    begin = np.flatnonzero(cut)
    end = np.append(begin[1:], unique)
    above = tree.parent[begin].astype(np.int64)
    parent = np.where(above >= 0, np.searchsorted(begin, above, side="right") - 1, -1)
    # A branch that does not follow its parent in the preorder is not the first one.
    aside = (above >= 0) & (above != begin - 1)
    level = np.zeros(len(begin), dtype=np.int64)
    for place, (over, is_aside) in enumerate(zip(parent.tolist(), aside.tolist(), strict=True)):
        if over >= 0:
            level[place] = level[over] + is_aside
    there = lengths > 0
    last[there] = np.searchsorted(begin, tree.index[tree.offsets[1:][there] - 1], side="right") - 1
    return Stretches(begin, end, tree.depth[begin].astype(np.int64), parent, level, uses[begin].astype(np.int64), last)
