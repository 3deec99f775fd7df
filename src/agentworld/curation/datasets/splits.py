"""Dividing a selection: what belongs together goes into one split, and what a parent version has divided stays so.

Trajectories come in keys (a task, a group, or themselves), keys in clusters (those whose texts are nearly the same). A
cluster goes into one split as a whole. A cluster of which a parent has rows goes where these are; where they are in
several, into the one of these with the least fraction, so that nothing that was held out is trained on. The others, in
the order of a hash of their keys under the seed, fill what is left: each goes where the least share is filled among the
splits that it fits into, or, where it fits into none, where most is missing. A split that got nothing at last gets one
that another can spare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.curation.datasets.clusters import Texts, Union
from agentworld.errors import InvalidRequestError
from agentworld.pool.dataset_rules import check_dataset_name
from agentworld.records import Splits
from agentworld.records.dataset import SplitBy
from agentworld.records.ids import digest

MOST_SPLITS = 20
_EXACT = 1e-6
_AT_ONCE = 65_536  # clusters as numbers of Python

Numbers = npt.NDArray[np.integer[Any]]


class Division(msgspec.Struct):
    """What became of each key. `split`: by its number, the place of its split among the fractions. `cluster`: the
    number of the key that stands for its cluster. `largest`: rows of the largest cluster. `torn`: rows that a parent
    had in another split than the one that their cluster got, as the cluster joins what was in several.
    """

    split: npt.NDArray[np.int8]
    cluster: Numbers
    clusters: int
    largest: int
    torn: int


def check_splits(splits: Splits) -> Splits:
    """The same, where it can be meant; InvalidRequestError names what cannot."""
    if not isinstance(splits, Splits):
        raise InvalidRequestError(f"this must be a Splits, not {type(splits).__name__}", path="splits")
    if not isinstance(splits.fractions, dict) or not 1 <= len(splits.fractions) <= MOST_SPLITS:
        raise InvalidRequestError(f"there must be 1 to {MOST_SPLITS} splits", path="splits.fractions")
    for name, fraction in splits.fractions.items():
        check_dataset_name(name, "splits.fractions")
        if not _is_number(fraction) or not 0 < fraction <= 1:
            raise InvalidRequestError(
                f"the fraction of {name!r} must be over 0 and at most 1", path=f"splits.fractions.{name}"
            )
    total = math.fsum(splits.fractions.values())
    if abs(total - 1) > _EXACT:
        raise InvalidRequestError(
            f"the fractions add up to {total:g}, not to 1", path="splits.fractions", hint="For example 0.9 and 0.1"
        )
    if splits.by not in get_args(SplitBy):
        known = ", ".join(get_args(SplitBy))
        raise InvalidRequestError(f"nothing is kept together by {splits.by!r}", path="splits.by", hint=f"Use {known}")
    alike = splits.near_duplicates
    if alike is not None and (not _is_number(alike) or not 0 < alike <= 1):
        raise InvalidRequestError(
            "near_duplicates must be over 0 and at most 1, or null", path="splits.near_duplicates"
        )
    if not isinstance(splits.seed, int) or isinstance(splits.seed, bool) or not -(2**63) <= splits.seed < 2**63:
        raise InvalidRequestError("seed must be a whole number of 64 bits", path="splits.seed")
    return splits


def key_name(splits: Splits, key: str) -> bytes:
    """16 bytes that say when a key has its turn."""
    return digest(str(splits.seed).encode(), key.encode("utf-8", "surrogatepass"))


def divide(
    names: bytes | bytearray, sizes: Sequence[int], texts: Texts, splits: Splits, had: Numbers | None = None
) -> Division:
    """The split of each key. `names`: their `key_name`, one after the other. `sizes`: rows of each, 0 for one that only
    a parent has. `texts`: those of keys by number. `had`: (keys, splits), how many rows of each key parents have in
    each split.
    """
    count = len(sizes)
    union = Union(count)
    if splits.near_duplicates is not None:
        texts.join(union, splits.near_duplicates)
    cluster: Numbers = np.fromiter(map(union.find, range(count)), np.int32, count)
    rows = np.zeros(count, np.int64)
    np.add.at(rows, cluster, np.asarray(sizes, np.int64))
    parts = np.frombuffer(names, ">u8").reshape(count, 2)
    by_name = cluster[np.lexsort((parts[:, 1], parts[:, 0]))]
    # The clusters, each where the first of its names stands.
    roots: Numbers = by_name[np.sort(np.unique(by_name, return_index=True)[1])]
    votes = np.zeros((count if had is not None else 0, len(splits.fractions)), np.int64)
    if had is not None:
        np.add.at(votes, cluster, had)
    chosen = _fill(splits.fractions, rows, roots, votes)
    split = chosen[cluster]
    torn = 0
    if had is not None:
        elsewhere = np.arange(len(splits.fractions)) != split[:, None]
        torn = int(had[(np.asarray(sizes, np.int64) > 0)[:, None] & elsewhere].sum())
    return Division(split, cluster, int(np.count_nonzero(rows)), int(rows.max(initial=0)), torn)


def _fill(fractions: Mapping[str, float], rows: Numbers, roots: Numbers, votes: Numbers) -> npt.NDArray[np.int8]:
    """The split of each cluster by the number that stands for it; -1 for other numbers."""
    shares = list(fractions.values())
    wanted = [share * int(rows.sum()) for share in shares]
    filled = [0] * len(shares)
    chosen = np.full(len(rows), -1, np.int8)
    voted: Numbers = np.flatnonzero(votes.any(axis=1))
    for root in voted.tolist():
        there = np.flatnonzero(votes[root]).tolist()
        # The least of them; of equals, the split that is named last.
        chosen[root] = min(reversed(there), key=lambda split: shares[split])
        filled[chosen[root]] += int(rows[root])
    others: Numbers = roots[chosen[roots] < 0]
    for begin in range(0, len(others), _AT_ONCE):
        some = others[begin : begin + _AT_ONCE]
        for root, size in zip(some.tolist(), rows[some].tolist(), strict=True):
            fitting = [split for split, want in enumerate(wanted) if filled[split] + size <= want + _EXACT]
            if fitting:
                split = min(fitting, key=lambda one: filled[one] / wanted[one])
            else:
                split = max(range(len(shares)), key=lambda one: wanted[one] - filled[one])
            chosen[root] = split
            filled[split] += size
    _leave_none_empty(chosen, filled, rows, np.concatenate([voted, others]), len(voted))
    return chosen


def _leave_none_empty(
    chosen: npt.NDArray[np.int8], filled: list[int], rows: Numbers, roots: Numbers, voted: int
) -> None:
    """Give a split that got nothing a cluster, the smallest, of the split that has most rows and can spare one. The
    first `voted` of the clusters stay where a parent has them; the others are in the order of their names.
    """
    free: Numbers = roots[voted:][rows[roots[voted:]] > 0]
    there: Numbers = roots[rows[roots] > 0]
    for split, count in enumerate(filled):
        if count:
            continue
        spare = {
            each: free[chosen[free] == each]
            for each in dict.fromkeys(chosen[there].tolist())
            if np.count_nonzero(chosen[there] == each) > 1
        }
        givers = [each for each, clusters in spare.items() if len(clusters)]
        if not givers:
            continue
        giver = max(givers, key=lambda each: filled[each])
        root = int(spare[giver][np.argmin(rows[spare[giver]])])
        chosen[root] = split
        filled[giver] -= int(rows[root])
        filled[split] += int(rows[root])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
