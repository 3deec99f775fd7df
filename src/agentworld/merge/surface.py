"""Merging as methods: the words that a pool in this process and a client of a server have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from agentworld.merge.results import MOST_TOKENS, MergeSource, MergeStats, MergeTree
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool

if TYPE_CHECKING:
    from agentworld.merge.reading import Budget


class MergeWords(ABC):
    """What both have."""

    @abstractmethod
    def merge_stats(
        self,
        source: MergeSource | None = None,
        *,
        budget: int | None = None,
        model: str | None = None,
        max_tokens: int = MOST_TOKENS,
        progress: Progress = no_progress,
    ) -> MergeStats:
        """What merging saves on what `source` names, all steps by default. `budget`: tokens of a micro-batch, to pack
        them too; `model`: a name or LAYERS/HIDDEN/VOCABULARY (see agentworld.merge.costs), for the cost bound.
        """

    @abstractmethod
    def merge_tree(
        self,
        source: MergeSource | None = None,
        *,
        max_nodes: int = 1000,
        depth: int | None = None,
        ids: int = 0,
        max_tokens: int = MOST_TOKENS,
        progress: Progress = no_progress,
    ) -> MergeTree:
        """The token tree of it as a list of nodes; see agentworld.merge.nodes.merge_tree."""


def stats_of(
    pool: Pool,
    source: MergeSource,
    budget: int | None,
    model: str | None,
    limits: Budget,
    *,
    ids_of: Pool | None = None,
    progress: Progress = no_progress,
) -> MergeStats:
    """Read, and what merging saves; `ids_of`: see read_sequences."""
    from agentworld.merge.costs import model_shape
    from agentworld.merge.reading import read_sequences
    from agentworld.merge.summary import check_budget, merge_stats

    shape = None if model is None else model_shape(model)
    check_budget(budget)
    found = read_sequences(pool, source, budget=limits, ids_of=ids_of, progress=progress)
    return merge_stats(found, budget=budget, shape=shape, progress=progress)


def tree_of(
    pool: Pool,
    source: MergeSource,
    max_nodes: int,
    depth: int | None,
    ids: int,
    limits: Budget,
    *,
    ids_of: Pool | None = None,
    progress: Progress = no_progress,
) -> MergeTree:
    """Read, and its token tree; `ids_of`: see read_sequences."""
    from agentworld.merge.nodes import check_nodes, merge_tree
    from agentworld.merge.reading import read_sequences

    check_nodes(max_nodes, depth, ids)
    found = read_sequences(pool, source, budget=limits, ids_of=ids_of, progress=progress)
    return merge_tree(found, max_nodes=max_nodes, depth=depth, ids=ids)


class MergeSurface(MergeWords):
    """The methods of a pool in this process."""

    store: Pool

    def merge_stats(
        self,
        source: MergeSource | None = None,
        *,
        budget: int | None = None,
        model: str | None = None,
        max_tokens: int = MOST_TOKENS,
        progress: Progress = no_progress,
    ) -> MergeStats:
        """See MergeWords."""
        from agentworld.merge.reading import Budget

        return stats_of(
            self.store, source or MergeSource(), budget, model, Budget(tokens=max_tokens), progress=progress
        )

    def merge_tree(
        self,
        source: MergeSource | None = None,
        *,
        max_nodes: int = 1000,
        depth: int | None = None,
        ids: int = 0,
        max_tokens: int = MOST_TOKENS,
        progress: Progress = no_progress,
    ) -> MergeTree:
        """See MergeWords."""
        from agentworld.merge.reading import Budget

        return tree_of(
            self.store, source or MergeSource(), max_nodes, depth, ids, Budget(tokens=max_tokens), progress=progress
        )
