"""Reading sequences as arrays: each block once for each trajectory, shared beginnings as views of one array."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from sqlalchemy import select

from agentworld.errors import NotFoundError, PoolError
from agentworld.forest import BLOCK_SIZE, TokenArray
from agentworld.pool import schema
from agentworld.pool.arrays import StepArrays, frozen
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.packing import unpack_ids, unpack_logprobs, unpack_mask
from agentworld.pool.sql.reads import BLOCKS
from agentworld.pool.sql.rows import PROMPT_IDS
from agentworld.pool.sql.statements import integers, json_list, parameter, sql, texts

IDS_AT_ONCE = 2_000_000  # of the sequences that are read together, whose views keep them in memory
STEPS_AT_ONCE = 500

_s, _t = schema.steps.c, schema.trajectories.c
_SIZES = sql(
    select(_s.pk, _s.trajectory, _s.id_count).where(_s.pk.in_(integers("rows"))).order_by(_s.trajectory, _s.pk)
)
_NAMED = sql(select(_s.pk, _s.step_id).where(_s.step_id.in_(texts("ids"))))
_OF_TRAJECTORY = sql(
    select(_s.pk)
    .where(_s.trajectory == select(_t.pk).where(_t.trajectory_id == parameter("id")).scalar_subquery())
    .order_by(_s.pk)
)
_ROWS = sql(
    select(
        _s.pk, _s.step_id, _t.trajectory_id, _s.present, _s.block, _s.tail, _s.id_count, _s.prompt_length, _s.mask,
        _s.logprobs,
    )
    .join_from(schema.steps, schema.trajectories, _s.trajectory == _t.pk)
    .where(_s.pk.in_(integers("rows")))
    .order_by(_s.trajectory, _s.pk)
)  # fmt: skip
_Blocks = dict[int, tuple[int | None, bytes]]  # parent and packed ids, by primary key


def keys_of(reader: Reader, trajectory_id: str) -> list[int]:
    """The primary keys of a trajectory's steps, in commit order."""
    return [row[0] for row in reader.execute(_OF_TRAJECTORY, {"id": trajectory_id})]


def keys_named(reader: Reader, step_ids: Sequence[str]) -> list[int]:
    """The primary keys of the steps with these ids; NotFoundError where one is not there."""
    found = {row[1]: row[0] for row in reader.execute(_NAMED, {"ids": json_list(step_ids)})}
    for step_id in step_ids:
        if step_id not in found:
            raise NotFoundError(f"no step {step_id!r}", path="step_ids")
    return list(dict.fromkeys(found[step_id] for step_id in step_ids))


def portions(reader: Reader, keys: Sequence[int]) -> list[list[int]]:
    """The primary keys of steps by trajectory, in portions that can be read at once; steps without ids left out."""
    found: list[list[int]] = []
    held = 0
    rows = reader.execute(_SIZES, {"rows": json_list(keys)})
    for _, steps in itertools.groupby(rows, key=lambda row: row[1]):
        several = [(row[0], row[2]) for row in steps if row[2]]
        for begin in range(0, len(several), STEPS_AT_ONCE):
            part = several[begin : begin + STEPS_AT_ONCE]
            longest = max(count for _, count in part)
            if not found or held + longest > IDS_AT_ONCE or len(found[-1]) + len(part) > STEPS_AT_ONCE:
                found.append([])
                held = 0
            held += longest
            found[-1] += [key for key, _ in part]
    return found


def read_arrays(reader: Reader, keys: Sequence[int]) -> list[StepArrays]:
    """The steps with these primary keys, by trajectory and in commit order; those that are gone are left out."""
    rows = reader.execute(_ROWS, {"rows": json_list(keys)})
    ends = {row["block"] for row in rows if row["block"] is not None}
    blocks: _Blocks = {}
    if ends:
        blocks = {row[0]: (row[1], row[2]) for row in reader.execute(BLOCKS, {"ends": json_list(list(ends))})}
    found: list[StepArrays] = []
    for _, steps in itertools.groupby(rows, key=lambda row: row["trajectory_id"]):
        found += _arrays_of_trajectory(list(steps), blocks)
    return found


def _arrays_of_trajectory(rows: Sequence[Row], blocks: _Blocks) -> Iterator[StepArrays]:
    sequences: dict[int, TokenArray] = {}
    known = _Sequences(blocks)
    # The longest first: it nearly always begins with all the others.
    for row in sorted(rows, key=lambda row: row["id_count"], reverse=True):
        sequences[row["pk"]] = known.ids_of(row)
    for row in rows:
        yield StepArrays(
            step_id=row["step_id"],
            trajectory_id=row["trajectory_id"],
            prompt_length=row["prompt_length"] if row["present"] & PROMPT_IDS else 0,
            ids=sequences[row["pk"]],
            mask=unpack_mask(row["mask"]),
            logprobs=unpack_logprobs(row["logprobs"]),
        )


class _Sequences:
    """The sequences of one trajectory, put together; those that begin alike share their memory.

    `through`: of each block, the first sequence that goes through it. `branches`: where others go on otherwise after a
    block, what they go on with, sorted, so that one that begins with a tail is found however many there are.
    """

    def __init__(self, blocks: _Blocks) -> None:
        self._blocks = blocks
        self._through: dict[int | None, TokenArray] = {}
        self._ends: dict[int | None, int] = {None: 0}
        self._branches: dict[int | None, list[tuple[bytes, int, TokenArray]]] = {}

    def ids_of(self, row: Row) -> TokenArray:
        """The ids of one step; rows come with the longest first."""
        block, count = row["block"], row["id_count"]
        full = count - count % BLOCK_SIZE
        tail = unpack_ids(row["tail"] or b"", count - full)
        known = self._beginning(block, full, count, tail)
        if known is not None:
            return known
        path: list[int] = []
        at: int | None = block
        while at is not None and at not in self._through:
            if at not in self._blocks:
                raise PoolError(
                    f"block {at} of step {row['step_id']!r} is not there",
                    hint="Run `agentworld pool check`, then restore",
                )
            path.append(at)
            at = self._blocks[at][0]
        path.reverse()
        begin = self._ends[at]
        packed = [self._blocks[key][1] for key in path]
        parts = [self._through[at][:begin]] if begin else []
        if len({len(one) for one in packed}) == 1:  # Nearly always; one conversion instead of one a block.
            parts.append(unpack_ids(b"".join(packed), BLOCK_SIZE * len(packed)))
        else:
            parts += [unpack_ids(one, BLOCK_SIZE) for one in packed]
        parts.append(tail)
        ids = frozen(np.concatenate(parts))
        self._add(ids, at, begin, path)
        return ids

    def _beginning(self, block: int | None, full: int, count: int, tail: TokenArray) -> TokenArray | None:
        """The beginning of a known sequence that goes through `block` and on with `tail`."""
        through = self._through.get(block)
        if through is None:
            return None
        if np.array_equal(through[full:count], tail):
            return through[:count]
        branches = self._branches.get(block)
        if not branches:
            return None
        data = tail.tobytes()
        # What begins with the tail stands right after it.
        place = bisect.bisect_left(branches, (data,))
        if place < len(branches) and branches[place][0].startswith(data):
            return branches[place][2][:count]
        return None

    def _add(self, ids: TokenArray, at: int | None, begin: int, path: Sequence[int]) -> None:
        if at in self._through:
            branches = self._branches.setdefault(at, [])
            bisect.insort(branches, (ids[begin : begin + BLOCK_SIZE].tobytes(), len(branches), ids))
        else:
            self._through[at] = ids
        for number, key in enumerate(path):
            self._through[key] = ids
            self._ends[key] = begin + BLOCK_SIZE * (number + 1)
