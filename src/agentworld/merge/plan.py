"""How attention over a token tree is computed: the tree in runs, and what each way costs. Pure numpy.

A run is a stretch of the preorder in which each token is the child of the one before it. Its tokens attend to their
run up to themselves and to everything on the path above the run, so that every pair of tokens is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.merge.tree import TokenTree

QUERIES = 1024  # of a run at once where it has a path above it, so that their mask stays small
# Measured for torch's attention on CPU, forward and backward: pairs that are masked out cost as those that are not,
# and each call costs as many pairs more.
CALL_PAIRS = 40_000


class Run(NamedTuple):
    """Tokens `begin` to `end` of the tree, below the tokens `above` (int64, from the root on; empty for a root)."""

    begin: int
    end: int
    above: npt.NDArray[np.int64]


class Cost(NamedTuple):
    """Pairs of a query and a key, per head and layer. `needed`: those of the tree. `runs`: computed run by run, calls
    included; `dense`: as one square.
    """

    needed: int
    runs: int
    dense: int


@dataclass(frozen=True, eq=False, slots=True)
class AttentionPlan:
    """`ids` and `positions` int64[U] for the model; `end` int64[U]: see TokenTree. `dense`: whether one square costs
    less than the runs.
    """

    ids: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    runs: tuple[Run, ...]
    cost: Cost

    @property
    def dense(self) -> bool:
        """Whether one square costs less than the runs."""
        return self.cost.dense < self.cost.runs

    def visible(self) -> npt.NDArray[np.bool_]:
        """Which keys each query attends to, bool[U, U]; for small trees, and for tests."""
        places = np.arange(len(self.ids))
        return (places[None, :] <= places[:, None]) & (places[:, None] < self.end[None, :])


def interval_blocks(end: npt.NDArray[np.int64], size: int = 128) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Of the square of queries and keys in blocks of `size`: which have a pair that is seen and one that is not (or the
    edge of the tree), and in which every pair is seen; both bool[B, B], from the intervals alone.
    """
    count = -(-len(end) // size)
    padded = np.zeros(count * size, dtype=np.int64)
    padded[: len(end)] = end
    ends = padded.reshape(count, size)
    first = np.arange(count)[:, None] * size
    below = np.tri(count, k=-1, dtype=bool)
    some = below & (ends.max(axis=1)[None, :] > first)
    full = below & (ends.min(axis=1)[None, :] >= first + size)
    return (some & ~full) | np.eye(count, dtype=bool), full


def plan_attention(tree: TokenTree) -> AttentionPlan:
    """The plan of a tree, in time that is linear in its tokens and in the paths above its runs."""
    unique = len(tree.tokens)
    places = np.arange(unique)
    begins = np.flatnonzero(tree.parent != places - 1)
    if unique and (len(begins) == 0 or begins[0] != 0):
        begins = np.concatenate([[0], begins])  # The first root's parent is -1, which is the place before it.
    ends = np.append(begins[1:], unique) if unique else begins
    runs: list[Run] = []
    of_token = np.repeat(np.arange(len(begins)), ends - begins)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        parent = int(tree.parent[begin]) if begin else -1
        if parent < 0:
            above = np.zeros(0, dtype=np.int64)
        else:
            upper = runs[int(of_token[parent])]
            above = np.concatenate([upper.above, np.arange(upper.begin, parent + 1)])
        runs.append(Run(begin, end, above))
    needed = int(np.sum(tree.depth, dtype=np.int64)) + unique
    by_runs = sum(_run_pairs(run) for run in runs)
    return AttentionPlan(
        ids=tree.tokens.astype(np.int64),
        positions=tree.depth.astype(np.int64),
        end=tree.end.astype(np.int64),
        runs=tuple(runs),
        cost=Cost(needed=needed, runs=by_runs, dense=unique * unique + CALL_PAIRS),
    )


def _run_pairs(run: Run) -> int:
    """A root's run is causal, which skips half of its square; others are computed in blocks of queries with a mask."""
    length, above = run.end - run.begin, len(run.above)
    if not above:
        return length * (length + 1) // 2 + CALL_PAIRS
    pairs = 0
    for first in range(0, length, QUERIES):
        last = min(first + QUERIES, length)
        pairs += (last - first) * (above + last) + CALL_PAIRS
    return pairs
