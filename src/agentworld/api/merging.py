"""What merging saves: statistics of a token tree, and the tree as nodes to draw."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from litestar import get
from litestar.datastructures import State
from litestar.params import FromQuery, QueryParameter

from agentworld.api.access import reach
from agentworld.client.wire import API
from agentworld.errors import BusyError
from agentworld.merge.reading import Budget
from agentworld.merge.results import (
    MOST_IDS,
    MOST_NODES,
    MOST_TOKENS,
    SERVED_TOKENS,
    MergeSource,
    MergeStats,
    MergeTree,
)
from agentworld.merge.surface import stats_of, tree_of

MOST_AT_ONCE = 2
"""Trees that one process builds at once: each may take some hundreds of megabytes."""
MOST_STEPS = 50_000
MOST_ROWS = 500_000
_room = threading.BoundedSemaphore(MOST_AT_ONCE)

GroupId = Annotated[str | None, QueryParameter(description="The rollouts of this group")]
BatchId = Annotated[str | None, QueryParameter(description="The units of this batch")]
OfConsumer = Annotated[str | None, QueryParameter(description="The units of the newest batch of this consumer")]
Dataset = Annotated[str | None, QueryParameter(description="The rows of this version: NAME, or NAME@DIGITS")]
Split = Annotated[str | None, QueryParameter(description="Of a dataset, this split alone")]
TrajectoryId = Annotated[str | None, QueryParameter(description="The steps of this trajectory")]
Where = Annotated[str | None, QueryParameter(description="Steps for which this holds")]
MicroBatch = Annotated[int | None, QueryParameter(ge=1, le=2**31, description="Tokens of a micro-batch, to pack them")]
ModelName = Annotated[
    str | None, QueryParameter(description="A known model or LAYERS/HIDDEN/VOCABULARY, for the cost bound")
]
MaxTokens = Annotated[int, QueryParameter(ge=1, le=MOST_TOKENS, description="Flat tokens that are read, at most")]
MaxNodes = Annotated[int, QueryParameter(ge=1, le=MOST_NODES, description="Nodes, at most: the largest")]
Depth = Annotated[int | None, QueryParameter(ge=1, le=2**31, description="Nodes below one another, at most")]
Ids = Annotated[int, QueryParameter(ge=0, le=MOST_IDS, description="Token ids of each node, at most")]


@get(f"{API}/merge/stats", sync_to_thread=True)
def merge_stats(
    state: State,
    group: GroupId = None,
    batch: BatchId = None,
    consumer: OfConsumer = None,
    dataset: Dataset = None,
    split: Split = None,
    trajectory: TrajectoryId = None,
    where: Where = None,
    channel: FromQuery[str | None] = None,
    budget: MicroBatch = None,
    model: ModelName = None,
    max_tokens: MaxTokens = SERVED_TOKENS,
) -> MergeStats:
    """What merging saves on the sequences of a group, a batch, a dataset version, a trajectory, or of steps that match.
    Reading stops at `max_tokens`, at 50,000 steps or at 500,000 rows, and `stopped` says at which.
    """
    source = _source(group, batch, consumer, dataset, split, trajectory, where, channel)
    with _place():
        return stats_of(reach(state), source, budget, model, _limits(max_tokens), ids_of=state.pool)


@get(f"{API}/merge/tree", sync_to_thread=True)
def merge_tree(
    state: State,
    group: GroupId = None,
    batch: BatchId = None,
    consumer: OfConsumer = None,
    dataset: Dataset = None,
    split: Split = None,
    trajectory: TrajectoryId = None,
    where: Where = None,
    channel: FromQuery[str | None] = None,
    max_nodes: MaxNodes = 1000,
    depth: Depth = None,
    ids: Ids = 0,
    max_tokens: MaxTokens = SERVED_TOKENS,
) -> MergeTree:
    """Their token tree as a list of nodes in preorder. Where there are more than `max_nodes`, those are left out that
    the fewest tokens go through, and the node above says how many.
    """
    source = _source(group, batch, consumer, dataset, split, trajectory, where, channel)
    with _place():
        return tree_of(reach(state), source, max_nodes, depth, ids, _limits(max_tokens), ids_of=state.pool)


def _source(*given: str | None) -> MergeSource:
    source = MergeSource(**dict(zip(MergeSource.__struct_fields__, given, strict=True)))
    source.check()
    return source


def _limits(max_tokens: int) -> Budget:
    return Budget(tokens=max_tokens, steps=MOST_STEPS, rows=MOST_ROWS)


@contextmanager
def _place() -> Iterator[None]:
    if not _room.acquire(blocking=False):
        raise BusyError(
            f"{MOST_AT_ONCE} token trees are being built here already", hint="Send it again once one of them is done"
        )
    try:
        yield
    finally:
        _room.release()


ROUTES = [merge_stats, merge_tree]
