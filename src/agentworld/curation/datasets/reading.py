"""Reading a frozen version: its rows with their trajectories and steps, one trajectory in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from agentworld.curation.datasets.frozen import FrozenTrajectory, Skipped, SkippedRow
from agentworld.errors import NotFoundError, QueryError
from agentworld.pool.keeping.records import Tombstone
from agentworld.pool.protocol import Page, Pool
from agentworld.records import DatasetRow, Step, Trajectory

ROWS_AT_ONCE = 100
STEPS_AT_ONCE = 500
_TRIES = 3
T = TypeVar("T")
EVERYTHING = ("tokens", "messages", "logprobs")
ARRAYS = "arrays"
"""Asked for in the place of tokens and logprobs: in `FrozenTrajectory.arrays`, where a long trajectory takes what its
longest sequence does."""


def read_version(
    pool: Pool,
    version: str,
    *,
    split: str | None = None,
    skipped: Skipped | None = None,
    include: Sequence[str] = EVERYTHING,
) -> Iterator[FrozenTrajectory]:
    """The rows of a version (NAME, NAME@ and at least 6 digits, or whole), in order; of one split, or of all.

    What was said of it is as it was frozen; messages and ids are read as `include` asks. Rows whose trajectory or
    steps are gone are left out and told to `skipped`. NotFoundError, before the first row, where the version is not
    there or has no such split.
    """
    manifest = pool.get_dataset(version)
    if split is not None and split not in manifest.splits:
        raise NotFoundError(
            f"{manifest.version} has no split {split!r}", path="split", hint=f"It has: {', '.join(manifest.splits)}"
        )
    return _read(pool, manifest.version, split, skipped or (lambda row: None), include)


read_dataset = read_version
"""The name that `agentworld` has it under, beside `create_dataset`."""


def rows_of(pool: Pool, version: str, *, split: str | None = None) -> Iterator[DatasetRow]:
    """The rows of a version in order, page by page."""
    after = -1
    while True:
        rows = pool.dataset_rows(version, after=after, limit=ROWS_AT_ONCE, split=split)
        yield from rows
        if len(rows) < ROWS_AT_ONCE:
            return
        after = rows[-1].position


def whole_trajectory(pool: Pool, trajectory_id: str) -> Trajectory | None:
    """The trajectory, or None where it is not there, or is being taken away."""
    try:
        found = pool.get_trajectory(trajectory_id)
    except NotFoundError:
        return None
    return None if "deleted" in (found.excluded_reason or "").split("; ") else found


def in_time(page: Callable[[], Page[T]]) -> Page[T]:
    """The page. Its search has a limit of time, which a machine that is busy for a moment is over: it is asked for
    again, so that this ends no work of an hour.
    """
    for left in reversed(range(_TRIES)):
        try:
            return page()
        except QueryError:  # What the expression can mean was seen to before.
            if not left:
                raise
    raise AssertionError


def steps_of(
    pool: Pool, trajectory_id: str, *, where: str | None = None, include: Sequence[str] = EVERYTHING
) -> Iterator[Step]:
    """The steps of a trajectory in commit order, page by page."""
    cursor: str | None = None
    while True:
        page = in_time(
            partial(
                pool.list_steps,
                trajectory_id=trajectory_id,
                where=where,
                include=include,
                cursor=cursor,
                limit=STEPS_AT_ONCE,
            )
        )
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def read_row(pool: Pool, row: DatasetRow, include: Sequence[str] = EVERYTHING) -> FrozenTrajectory | None:
    """One row as `read_version` gives it; None where its trajectory or a step of it is gone."""
    found = _read_row(pool, row, include)
    return None if isinstance(found, bool) else found


def read_or_say(
    pool: Pool, row: DatasetRow, deleted: Deleted, include: Sequence[str] = EVERYTHING
) -> FrozenTrajectory | SkippedRow:
    """The same, or why it cannot be read."""
    found = _read_row(pool, row, include)
    return skipped_row(row, deleted, there=found) if isinstance(found, bool) else found


class Deleted:
    """What was deleted on request, looked up by trajectory; read once, and only where something is missing."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._found: dict[str, Tombstone] | None = None

    def find(self, target_id: str) -> Tombstone | None:
        """The tombstone of a trajectory or a step, or None."""
        if self._found is None or target_id not in self._found:
            self._read()
        assert self._found is not None
        return self._found.get(target_id)

    def _read(self) -> None:
        after = max((one.sequence for one in self._found.values()), default=0) if self._found else 0
        self._found = self._found or {}
        while True:
            page = self._pool.tombstones(after, 1000)
            self._found |= {one.target_id: one for one in page if one.kind != "user"}
            if len(page) < 1000:
                return
            after = page[-1].sequence


def skipped_row(row: DatasetRow, deleted: Deleted, *, there: bool) -> SkippedRow:
    """Why a row cannot be read. `there`: its trajectory can, but not all of its steps."""
    tomb = deleted.find(row.trajectory_id)
    if tomb is not None:
        return SkippedRow(row.position, row.trajectory_id, row.split, "deleted", tomb.reason, tomb.at)
    return SkippedRow(row.position, row.trajectory_id, row.split, "steps" if there else "missing")


def _read(
    pool: Pool, version: str, split: str | None, skipped: Skipped, include: Sequence[str]
) -> Iterator[FrozenTrajectory]:
    deleted = Deleted(pool)
    for row in rows_of(pool, version, split=split):
        found = read_or_say(pool, row, deleted, include)
        if isinstance(found, SkippedRow):
            skipped(found)
        else:
            yield found


def _read_row(pool: Pool, row: DatasetRow, include: Sequence[str]) -> FrozenTrajectory | bool:
    """The row as it was frozen, or whether its trajectory is there, but not all of its steps."""
    trajectory = whole_trajectory(pool, row.trajectory_id)
    if trajectory is None:
        return False
    of_steps = [each for each in include if each != ARRAYS]
    steps = _steps(pool, row, of_steps)
    if steps is None:
        return True
    said = {"rewards": row.rewards, "reward": row.reward, "labels": row.labels}
    found = FrozenTrajectory(row=row, trajectory=msgspec.structs.replace(trajectory, **said), steps=steps)
    if ARRAYS in include:
        wanted = {step.step_id for step in steps}
        read = pool.sequences(trajectory_id=row.trajectory_id)
        found.arrays = {one.step_id: one for one in read if one.step_id in wanted}
    return found


def _steps(pool: Pool, row: DatasetRow, include: Sequence[str]) -> list[Step] | None:
    """The row's steps with what was said of them then; None where one is not there."""
    wanted = {frozen.step_id: frozen for frozen in row.steps}
    found = {
        step.step_id: step for step in steps_of(pool, row.trajectory_id, include=include) if step.step_id in wanted
    }
    if len(found) < len(wanted):
        return None
    return [
        msgspec.structs.replace(
            found[frozen.step_id], rewards=frozen.rewards, reward=frozen.reward, labels=frozen.labels
        )
        for frozen in row.steps
    ]
