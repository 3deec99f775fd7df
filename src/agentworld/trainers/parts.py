"""An update's rows in micro-batches: padded rows of similar lengths, or token trees under the same budget. Pure numpy.

Which of the two is taken is decided by what each costs, so that merging is not slower than flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agentworld.merge import TokenTree, pack, plan_attention
from agentworld.merge.costs import Load, ModelShape, cost
from agentworld.merge.plan import CALL_PAIRS
from agentworld.trainers.minibatches import Unit, row_tree, trained
from agentworld.trainers.rows import Row
from agentworld.trainers.settings import Merging

# What merging has to save at least before it is taken: estimates are no better than this.
MARGIN = 0.95


class Part(NamedTuple):
    """One forward: the update's units by their places, how many rows each has, their rows one after the other, and the
    tree that they are computed as, None for padded rows.
    """

    units: tuple[int, ...]
    sizes: tuple[int, ...]
    rows: tuple[Row, ...]
    tree: TokenTree | None

    @property
    def tokens(self) -> int:
        """Tokens that the forward computes, padding included."""
        if self.tree is not None:
            return len(self.tree.tokens)
        return len(self.rows) * max(map(len, self.rows))


def flat_parts(units: Sequence[Unit], tokens: int) -> list[Part]:
    """Micro-batches of similar lengths, each at most `tokens` padded (or a single unit)."""
    longest = [max(map(len, unit)) for unit in units]
    order = sorted(range(len(units)), key=longest.__getitem__)
    groups: list[list[int]] = []
    rows = 0
    for place in order:
        if groups and longest[place] * (rows + len(units[place])) <= tokens:
            groups[-1].append(place)
            rows += len(units[place])
        else:
            groups.append([place])
            rows = len(units[place])
    return [_part(units, group, merged=False) for group in groups]


def merged_parts(units: Sequence[Unit], tokens: int, pairs: int | None = None) -> list[Part]:
    """Micro-batches of at most `tokens` of their trees, and `pairs` of attention (or a single unit)."""
    if any(len(unit) > 1 for unit in units):
        return _whole_units(units, tokens, pairs)
    rows = [unit[0] for unit in units]
    longest = max(map(len, rows))
    most = None if pairs is None else max(pairs, longest * (longest + 1) // 2)
    packing = pack(row_tree(rows), max(tokens, longest), attention_budget=most)
    return [_part(units, sorted(each.sequences), merged=True) for each in packing.micro_batches if each.sequences]


def chosen_parts(
    units: Sequence[Unit], merging: Merging, tokens: int, pairs: int | None, shape: ModelShape | None
) -> list[Part]:
    """The update's micro-batches; `shape` of the model, None for one that merging does not know."""
    flat = flat_parts(units, tokens)
    if merging == "off" or shape is None:
        return flat
    merged = merged_parts(units, tokens, pairs)
    if merging == "on":
        return merged
    return merged if _operations(merged, shape) < MARGIN * _operations(flat, shape) else flat


def _whole_units(units: Sequence[Unit], tokens: int, pairs: int | None) -> list[Part]:
    """Units whose rows stay together, one after the other, as long as the tree of all of them is under the budget."""
    groups: list[list[int]] = []
    for place in range(len(units)):
        if groups and _fits([row for each in (*groups[-1], place) for row in units[each]], tokens, pairs):
            groups[-1].append(place)
        else:
            groups.append([place])
    return [_part(units, group, merged=True) for group in groups]


def _fits(rows: Sequence[Row], tokens: int, pairs: int | None) -> bool:
    tree = row_tree(rows)
    if len(tree.tokens) > tokens:
        return False
    return pairs is None or int(np.sum(tree.depth, dtype=np.int64)) + len(tree.tokens) <= pairs


def _part(units: Sequence[Unit], places: Sequence[int], *, merged: bool) -> Part:
    rows = tuple(row for place in places for row in units[place])
    sizes = tuple(len(units[place]) for place in places)
    return Part(tuple(places), sizes, rows, row_tree(rows) if merged else None)


def _operations(parts: Sequence[Part], shape: ModelShape) -> float:
    """Of forwards and backwards, calls of attention counted as pairs."""
    total = 0.0
    for part in parts:
        if part.tree is None:
            width = max(map(len, part.rows))
            pairs = len(part.rows) * width * (width + 1) // 2 + CALL_PAIRS
            rows = sum(int(trained(row).sum()) for row in part.rows)
        else:
            ways = plan_attention(part.tree).cost
            pairs = min(ways.runs, ways.dense)
            nodes = part.tree.index[np.concatenate([trained(row) for row in part.rows])]
            rows = len(np.unique(part.tree.parent[nodes]))
        total += cost(shape, Load(part.tokens, pairs, rows)).total
    return total
