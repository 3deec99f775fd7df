"""A batch cut into shares for the workers of one trainer. Pure and deterministic: each worker cuts for itself.

Collective operations need every worker to make the same number of forward passes, so shares are equally long; what is
missing are copies that nobody trains on. Longest first to the worker with the least so far keeps their work near equal
(Graham 1969, "Bounds on multiprocessing timing anomalies": at most 4/3 of the best, without the limit of items each).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.records import Batch, BatchItem, BatchTrajectory


def shard(batch: Batch, rank: int, world: int, micro_batch_size: int = 1) -> Batch:
    """The share of worker `rank` of `world`: as many items as every other share has, a multiple of `micro_batch_size`.

    The items of all shares that are no padding are those of the batch, each once, in its order. `metadata` names the
    shard as [rank, world] and the number of micro-batches.
    """
    for name, number in (("rank", rank), ("world", world), ("micro_batch_size", micro_batch_size)):
        if not isinstance(number, int) or isinstance(number, bool):
            raise InvalidRequestError(f"{name} must be a whole number, not {number!r}", path=name)
    if world < 1 or not 0 <= rank < world:
        raise InvalidRequestError(f"rank {rank} is not one of {world} workers", path="rank")
    if micro_batch_size < 1:
        raise InvalidRequestError("micro_batch_size must be 1 or more", path="micro_batch_size")
    sizes = [item_tokens(item) for item in batch.items]
    shares = share(sizes, world)
    most = -(-len(sizes) // world)
    length = -(-most // micro_batch_size) * micro_batch_size
    items = [batch.items[index] for index in shares[rank]]
    if batch.items:
        smallest = batch.items[min(range(len(sizes)), key=sizes.__getitem__)]
        items += [padding_of(smallest) for _ in range(length - len(items))]
    metadata = {**batch.metadata, "shard": [rank, world], "micro_batches": length // micro_batch_size}
    return msgspec.structs.replace(batch, items=items, metadata=metadata)


def share(sizes: Sequence[int], world: int) -> list[list[int]]:
    """The indices of each of `world` shares, ascending: at most ceil(n / world) each, with near equal sums of sizes."""
    most = -(-len(sizes) // world)
    shares: list[list[int]] = [[] for _ in range(world)]
    sums = [0] * world
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        free = [rank for rank in range(world) if len(shares[rank]) < most]
        chosen = min(free, key=lambda rank: (sums[rank], len(shares[rank]), rank))
        shares[chosen].append(index)
        sums[chosen] += sizes[index]
    return [sorted(indices) for indices in shares]


def item_tokens(item: BatchItem) -> int:
    """About how many tokens a trainer computes for the item: what its steps add to the sequences that they continue."""
    return sum(_tokens(entry) for entry in item.trajectories)


def padding_of(item: BatchItem) -> BatchItem:
    """A copy of the item that is not to be trained on."""
    entries = [msgspec.structs.replace(entry, trained=False) for entry in item.trajectories]
    return msgspec.structs.replace(item, trajectories=entries, padding=True)


def _tokens(entry: BatchTrajectory) -> int:
    total = reached = 0
    for step in entry.steps:
        prompt, reply = step.prompt_length or 0, step.response_length or 0
        # A prompt that is shorter than what came before does not continue it.
        total += prompt + reply - (reached if prompt >= reached else 0)
        reached = prompt + reply
    return total
