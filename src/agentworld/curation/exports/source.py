"""A version as layouts read it, of a pool in this process or of a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from agentworld.curation.datasets.frozen import FrozenTrajectory, Skipped, SkippedRow
from agentworld.curation.datasets.reading import read_row, read_version
from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetRow, DatasetVersion


class Records(Protocol):
    """What an export reads. `include`: messages, and of ids tokens and logprobs, or arrays; see `read_version`."""

    def get_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""

    def dataset_rows(self, version: str, *, after: int = -1, limit: int = 100) -> list[DatasetRow]:
        """See Pool."""

    def read_frozen(
        self, version: str, *, split: str | None, skipped: Skipped, include: Sequence[str]
    ) -> Iterator[FrozenTrajectory]:
        """See read_version."""

    def read_frozen_row(self, version: str, row: DatasetRow, include: Sequence[str]) -> FrozenTrajectory | None:
        """See read_row."""

    def trajectory_of(self, step_id: str) -> str | None:
        """The trajectory of a step; null where it is not there."""

    def media_of(self, digest: str) -> bytes:
        """The bytes of a medium; NotFoundError where they are not there."""


class PoolRecords:
    """Those of a pool in this process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def get_dataset(self, version: str) -> DatasetVersion:
        """See Records."""
        return self._pool.get_dataset(version)

    def dataset_rows(self, version: str, *, after: int = -1, limit: int = 100) -> list[DatasetRow]:
        """See Records."""
        return self._pool.dataset_rows(version, after=after, limit=limit)

    def read_frozen(
        self, version: str, *, split: str | None, skipped: Skipped, include: Sequence[str]
    ) -> Iterator[FrozenTrajectory]:
        """See Records."""
        return read_version(self._pool, version, split=split, skipped=skipped, include=include)

    def read_frozen_row(self, version: str, row: DatasetRow, include: Sequence[str]) -> FrozenTrajectory | None:
        """See Records."""
        return read_row(self._pool, row, include)

    def trajectory_of(self, step_id: str) -> str | None:
        """See Records."""
        try:
            return self._pool.get_step(step_id, include=()).trajectory_id
        except NotFoundError:
            return None

    def media_of(self, digest: str) -> bytes:
        """See Records."""
        return self._pool.get_media(digest).data


class VersionSource:
    """See Source. `reads`: what of steps is read beside their facts."""

    def __init__(self, records: Records, version: DatasetVersion, reads: Sequence[str]) -> None:
        self.version = version
        self._records = records
        self._reads = tuple(reads)

    def read(self, split: str, left_out: Counter[str]) -> Iterator[FrozenTrajectory]:
        """The rows of a split; those that cannot be read any more are counted."""

        def skipped(row: SkippedRow) -> None:
            left_out["missing_steps" if row.why == "steps" else row.why] += 1

        return self._records.read_frozen(self.version.version, split=split, skipped=skipped, include=self._reads)

    def at(self, position: int) -> FrozenTrajectory | None:
        """See Source."""
        row = self._row(position)
        return None if row is None else self._records.read_frozen_row(self.version.version, row, self._reads)

    def find(self, trajectory_id: str) -> DatasetRow | None:
        """See Source."""
        first, end = 0, self.version.rows
        while first < end:  # Rows are in the order of their ids.
            middle = (first + end) // 2
            row = self._row(middle)
            if row is None:
                return None
            if row.trajectory_id == trajectory_id:
                return row
            if row.trajectory_id < trajectory_id:
                first = middle + 1
            else:
                end = middle
        return None

    def trajectory_of(self, step_id: str) -> str | None:
        """See Source."""
        return self._records.trajectory_of(step_id)

    def media(self, digest: str) -> bytes:
        """See Source."""
        return self._records.media_of(digest)

    def _row(self, position: int) -> DatasetRow | None:
        return next(iter(self._records.dataset_rows(self.version.version, after=position - 1, limit=1)), None)
