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
from typing import get_args

import msgspec

from agentworld.curation.datasets.clusters import Texts, Union
from agentworld.errors import InvalidRequestError
from agentworld.pool.dataset_rules import check_dataset_name
from agentworld.records import Splits
from agentworld.records.dataset import SplitBy
from agentworld.records.ids import digest

MOST_SPLITS = 20
_EXACT = 1e-6


class Division(msgspec.Struct):
    """What became of each key. `split`: by its number. `cluster`: the number of the key that stands for its cluster.
    `largest`: rows of the largest cluster. `torn`: rows that a parent had in another split than the one that their
    cluster got, as the cluster joins what was in several.
    """

    split: list[str]
    cluster: list[int]
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


def divide(
    keys: Sequence[str],
    sizes: Sequence[int],
    texts: Texts,
    splits: Splits,
    had: Mapping[int, Mapping[str, int]] | None = None,
) -> Division:
    """The split of each key. `sizes`: rows of each, 0 for one that only a parent has. `texts`: those of keys by number.
    `had`: by number, how many rows of it parents have in each split.
    """
    union = Union(len(keys))
    if splits.near_duplicates is not None:
        texts.join(union, splits.near_duplicates)
    cluster = [union.find(number) for number in range(len(keys))]
    rows: dict[int, int] = {}
    names: dict[int, bytes] = {}
    votes: dict[int, dict[str, int]] = {}
    seed = str(splits.seed).encode()
    for number, root in enumerate(cluster):
        rows[root] = rows.get(root, 0) + sizes[number]
        own = digest(seed, keys[number].encode("utf-8", "surrogatepass"))
        names[root] = min(names.get(root, own), own)
        for split, count in (had or {}).get(number, {}).items():
            if split in splits.fractions:
                of = votes.setdefault(root, {})
                of[split] = of.get(split, 0) + count
    chosen = _fill(splits.fractions, rows, names, votes)
    torn = sum(
        count
        for number, root in enumerate(cluster)
        for split, count in (had or {}).get(number, {}).items()
        if sizes[number] and split in splits.fractions and split != chosen[root]
    )
    kept = [count for count in rows.values() if count]
    return Division([chosen[root] for root in cluster], cluster, len(kept), max(kept, default=0), torn)


def _fill(
    fractions: Mapping[str, float],
    rows: Mapping[int, int],
    names: Mapping[int, bytes],
    votes: Mapping[int, Mapping[str, int]],
) -> dict[int, str]:
    """The split of each cluster."""
    total = sum(rows.values())
    wanted = {split: fraction * total for split, fraction in fractions.items()}
    filled = dict.fromkeys(fractions, 0)
    chosen: dict[int, str] = {}
    for root, of in votes.items():
        # The least of them; of equals, the split that is named last.
        chosen[root] = min(reversed(list(fractions)), key=lambda split: fractions[split] if of.get(split) else math.inf)
        filled[chosen[root]] += rows[root]
    for root in sorted(rows.keys() - chosen.keys(), key=lambda one: names[one]):
        size = rows[root]
        fitting = [split for split in fractions if filled[split] + size <= wanted[split] + _EXACT]
        if fitting:
            split = min(fitting, key=lambda one: filled[one] / wanted[one])
        else:
            split = max(fractions, key=lambda one: wanted[one] - filled[one])
        chosen[root] = split
        filled[split] += size
    _leave_none_empty(chosen, filled, rows, names, votes)
    return chosen


def _leave_none_empty(
    chosen: dict[int, str],
    filled: dict[str, int],
    rows: Mapping[int, int],
    names: Mapping[int, bytes],
    votes: Mapping[int, Mapping[str, int]],
) -> None:
    """Give a split that got nothing a cluster, the smallest, of the split that has most rows and can spare one."""
    for split in filled:
        if filled[split]:
            continue
        free: dict[str, list[int]] = {}
        for root, there in chosen.items():
            if rows[root]:
                free.setdefault(there, []).append(root)
        spare = {
            there: [root for root in roots if root not in votes] for there, roots in free.items() if len(roots) > 1
        }
        givers = [there for there, roots in spare.items() if roots]
        if not givers:
            continue
        giver = max(givers, key=lambda there: filled[there])
        root = min(spare[giver], key=lambda one: (rows[one], names[one]))
        chosen[root] = split
        filled[giver] -= rows[root]
        filled[split] += rows[root]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
