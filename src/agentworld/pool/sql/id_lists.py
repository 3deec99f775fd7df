"""Sequences of ids as lists: the numbers of a block are made once, however many steps begin with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from agentworld.errors import PoolError
from agentworld.forest import BLOCK_SIZE
from agentworld.pool.sql.packing import unpack_id_lists

Blocks = Mapping[int, tuple[int | None, bytes]]  # parent and packed ids, by primary key


def sequences(blocks: Blocks, ends: Collection[int]) -> dict[int | None, list[int]]:
    """For each end, and for None, the ids from the root down to it; `blocks` holds every block on the way."""
    known: dict[int | None, list[int]] = {None: []}
    if not ends:
        return known
    lists = unpack_id_lists([ids for _, ids in blocks.values()], [BLOCK_SIZE] * len(blocks))
    decoded = dict(zip(blocks, lists, strict=True))
    for end in sorted(ends):  # Parents are older, so that a path begins with the nearest one that is known.
        path: list[int] = []
        at: int | None = end
        while at is not None and at not in known:
            if at not in blocks:
                raise PoolError(
                    f"the pool is damaged: row {at}, which others build on, is missing",
                    hint="Restore it from a backup; `agentworld pool check` names all that is wrong",
                )
            path.append(at)
            at = blocks[at][0]
        ids = known[at].copy()
        for block in reversed(path):
            ids += decoded[block]
        known[end] = ids
    return known


def divided(before: Sequence[int], tail: Sequence[int], place: int) -> tuple[list[int], list[int]]:
    """`before` and `tail` together as two new lists, the second of which begins at `place`."""
    if place <= len(before):
        return [*before[:place]], [*before[place:], *tail]
    place -= len(before)
    return [*before, *tail[:place]], [*tail[place:]]
