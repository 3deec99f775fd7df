"""A pool as a Ray Data source: each read task opens the pool in its worker and streams one slice of the steps.

Slices are ranges of primary keys up to the last one of the moment of planning. Keys never change, so no step comes
twice, and none that was there then is missing but for those deleted meanwhile. Rewards, labels and readiness are those
of the moment at which a task reads. A task that Ray runs again reads again.

The agentworld package, and for PostgreSQL its driver, must be installed on the workers. Left out: writing to a pool.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from agentworld.pool import open_store
from agentworld.pool.sql.store_slices import Slice
from agentworld.pool.urls import shown_url

if TYPE_CHECKING:
    from agentworld.pool.sql.store import SqlPool

_ROW_BYTES = 600  # of a row beside its arrays, about


class PoolAddress:
    """The URL of a pool, whose secrets no text form of this object shows: Ray writes what it plans into its logs."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def __repr__(self) -> str:
        return f"PoolAddress({shown_url(self._url)!r})"

    def open(self) -> SqlPool:
        """The pool; the caller closes it."""
        store: SqlPool = open_store(self._url)  # type: ignore[assignment]  # to_ray lets no other store come here.
        return store


class PoolSource(Datasource):  # type: ignore[misc]  # Ray is not there for the type checker.
    """The steps of a pool that match. `bytes_expected`: at most so many in memory, for Ray's choice of blocks."""

    def __init__(
        self,
        address: PoolAddress,
        last_key: int,
        where: str | None,
        channel: str | None,
        include: Sequence[str],
        now: float,
        bytes_expected: int,
    ) -> None:
        super().__init__()
        self._address = address
        self._whole = Slice(0, last_key, where, channel, tuple(include), now)
        self._bytes = bytes_expected

    def get_name(self) -> str:
        """What Ray's progress and logs call the reading."""
        return "AgentWorldPool"

    def estimate_inmemory_data_size(self) -> int | None:
        """See Ray's Datasource."""
        return self._bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[Any]:
        """As many tasks as asked for, of equally many keys; fewer where there are fewer keys."""
        known_later = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
        return [
            ReadTask(functools.partial(_read, self._address, part), known_later, per_task_row_limit=per_task_row_limit)
            for part in slices(self._whole, parallelism)
        ]


def slices(whole: Slice, count: int) -> list[Slice]:
    """At least one and up to `count` slices that together are the whole, equally long but for one key."""
    keys = whole.until - whole.above
    count = max(1, min(count, keys))
    ends = [whole.above + keys * number // count for number in range(count + 1)]
    return [whole._replace(above=above, until=until) for above, until in itertools.pairwise(ends)]


def dataset(
    store: SqlPool, url: str, *, where: str | None, channel: str | None, include: Sequence[str], blocks: int | None
) -> ray.data.Dataset:
    """The dataset of an open store; `url`: where workers open it. See EmbeddedPool.to_ray."""
    stats = store.stats()
    expected = _ROW_BYTES * stats.steps
    if "tokens" in include:
        expected += 4 * stats.tokens_flat
    if "logprobs" in include:
        expected += 4 * stats.tokens_sampled
    if "messages" in include:
        expected += 4 * stats.tokens_flat  # About 4 characters an id.
    source = PoolSource(PoolAddress(url), store.last_key(), where, channel, include, store.now(), expected)
    return ray.data.read_datasource(source, override_num_blocks=blocks)


def _read(address: PoolAddress, part: Slice) -> Iterator[Any]:
    store = address.open()
    try:
        yield from store.tables(part)
    finally:
        store.close()
