"""What merging saves, over HTTP, for threads and for event loops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar
from urllib.parse import urlencode

from agentworld.client.calls import Call
from agentworld.client.wire import API
from agentworld.merge.results import SERVED_TOKENS, MergeSource, MergeStats, MergeTree
from agentworld.merge.surface import MergeWords
from agentworld.pool.keeping.records import Progress, no_progress

T = TypeVar("T")
SECONDS = 600.0
"""A client waits so long: a server may have to look at many rows for what matches."""


def merge_stats(source: MergeSource, **asked: Any) -> Call[MergeStats]:
    """Statistics of the token tree."""
    return Call("GET", _path("stats", source, asked), MergeStats, timeout=SECONDS)


def merge_tree(source: MergeSource, **asked: Any) -> Call[MergeTree]:
    """The token tree as nodes."""
    return Call("GET", _path("tree", source, asked), MergeTree, timeout=SECONDS)


def _path(name: str, source: MergeSource, asked: dict[str, Any]) -> str:
    source.check()
    of = {field: getattr(source, field) for field in source.__struct_fields__}
    given = {field: value for field, value in {**of, **asked}.items() if value is not None}
    return f"{API}/merge/{name}?{urlencode(given)}"


class MergeMethods(MergeWords):
    """The words of merging, answered by a server: of progress only the end is told, and it reads less by default."""

    @abstractmethod
    def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    def merge_stats(
        self,
        source: MergeSource | None = None,
        *,
        budget: int | None = None,
        model: str | None = None,
        max_tokens: int = SERVED_TOKENS,
        progress: Progress = no_progress,
    ) -> MergeStats:
        """See MergeWords."""
        found = self._send(merge_stats(source or MergeSource(), budget=budget, model=model, max_tokens=max_tokens))
        progress("merge", found.units, found.units)
        return found

    def merge_tree(
        self,
        source: MergeSource | None = None,
        *,
        max_nodes: int = 1000,
        depth: int | None = None,
        ids: int = 0,
        max_tokens: int = SERVED_TOKENS,
        progress: Progress = no_progress,
    ) -> MergeTree:
        """See MergeWords."""
        found = self._send(
            merge_tree(source or MergeSource(), max_nodes=max_nodes, depth=depth, ids=ids, max_tokens=max_tokens)
        )
        progress("merge", len(found.nodes), len(found.nodes))
        return found


class AsyncMergeMethods(ABC):
    """As MergeMethods, for event loops."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    async def merge_stats(
        self,
        source: MergeSource | None = None,
        *,
        budget: int | None = None,
        model: str | None = None,
        max_tokens: int = SERVED_TOKENS,
    ) -> MergeStats:
        """What merging saves on what `source` names."""
        return await self._send(merge_stats(source or MergeSource(), budget=budget, model=model, max_tokens=max_tokens))

    async def merge_tree(
        self,
        source: MergeSource | None = None,
        *,
        max_nodes: int = 1000,
        depth: int | None = None,
        ids: int = 0,
        max_tokens: int = SERVED_TOKENS,
    ) -> MergeTree:
        """The token tree of it as a list of nodes."""
        return await self._send(
            merge_tree(source or MergeSource(), max_nodes=max_nodes, depth=depth, ids=ids, max_tokens=max_tokens)
        )
