"""What merging saves on sequences that were read: numbers of their token tree, of each unit, of packing and of cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentworld.errors import InvalidRequestError
from agentworld.merge.costs import ModelShape, cost_bound, flat_load, merged_load
from agentworld.merge.forks import fork_reasons
from agentworld.merge.packing import pack
from agentworld.merge.reading import Sequences
from agentworld.merge.results import MergeStats, PackedNumbers, TreeNumbers, UnitNumbers
from agentworld.merge.stretches import stretches
from agentworld.merge.tree import TokenTree
from agentworld.pool.keeping.records import Progress, no_progress

WORST = 10


def merge_stats(
    found: Sequences,
    *,
    budget: int | None = None,
    shape: ModelShape | None = None,
    progress: Progress = no_progress,
) -> MergeStats:
    """The statistics of sequences. `budget`: tokens of a micro-batch, to pack them; `shape`: of a model, for the
    cost."""
    check_budget(budget)
    tree = found.tree()
    trained = found.attributes().trained
    units = found.units()
    each: list[UnitNumbers] = []
    for number, (name, places) in enumerate(units.items()):
        own = tree if len(units) == 1 else found.tree(places)
        numbers = _numbers(own, found, places)
        each.append(UnitNumbers(**{key: getattr(numbers, key) for key in numbers.__struct_fields__}, unit=name))
        progress("merge", number + 1, len(units))
    whole = _numbers(tree, found, range(len(found.items)))
    bound = None if shape is None else cost_bound(shape, flat_load(tree, trained), merged_load(tree, trained))
    return MergeStats(
        source=found.source,
        whole=whole,
        apart=sum(one.unique for one in each),
        trained=int(np.count_nonzero(trained)),
        trained_unique=len(np.unique(tree.index[trained])),
        units=len(units),
        worst=sorted(each, key=lambda one: (one.ratio, -one.total))[:WORST],
        vocabularies=len(found.vocabularies()),
        packing=None if budget is None else _packed(found, tree, budget),
        cost=bound,
        excluded=found.excluded,
        without_ids=found.without_ids,
        missing=found.missing,
        stopped=found.stopped,
    )


def check_budget(budget: int | None) -> None:
    """InvalidRequestError where no micro-batch can have so many tokens."""
    if budget is not None and budget < 1:
        raise InvalidRequestError(f"a micro-batch has at least 1 token, not {budget}", path="budget")


def _numbers(tree: TokenTree, found: Sequences, places: Sequence[int]) -> TreeNumbers:
    known = tree.statistics()
    parts = stretches(tree)
    children = parts.children()
    roots = int(np.count_nonzero(parts.parent < 0))
    branches = [*children[children > 1].tolist(), *([roots] if roots > 1 else [])]
    ends = children == 0
    joined = int(np.sum(parts.depth[ends] + parts.lengths()[ends]))
    return TreeNumbers(
        sequences=known.sequences,
        total=known.total,
        joined=joined,
        unique=known.unique,
        ratio=known.ratio,
        joined_ratio=joined / known.unique if known.unique else 1.0,
        depth=known.depth,
        leaves=known.leaves,
        forks=len(branches),
        branching=sum(branches) / len(branches) if branches else 0.0,
        widest=max(branches, default=0),
        reasons=fork_reasons(parts, [found.items[place].step for place in places]).counts(),
    )


def _packed(found: Sequences, tree: TokenTree, budget: int) -> PackedNumbers:
    """Sequences that are over the budget alone cannot be packed, and are counted."""
    lengths = tree.lengths()
    fits = np.flatnonzero(lengths <= budget).tolist()
    kept = tree if len(fits) == len(lengths) else found.tree(fits)
    packing = pack(kept, budget)
    batches = [each for each in packing.micro_batches if each.sequences]
    return PackedNumbers(
        budget=budget,
        micro_batches=len(batches),
        fewest=packing.fewest,
        tokens=packing.tokens,
        bound=packing.bound,
        lost=packing.tokens / packing.bound - 1 if packing.bound else 0.0,
        fullest=max((each.tokens for each in batches), default=0),
        left_out=len(lengths) - len(fits),
    )
