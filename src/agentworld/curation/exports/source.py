"""A version in a pool, as layouts read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.reading import SkippedRow, read_row, read_version
from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetRow, DatasetVersion


class PoolSource:
    """See Source. `reads`: what of steps is read beside their facts."""

    def __init__(self, pool: Pool, version: DatasetVersion, reads: Sequence[str]) -> None:
        self.version = version
        self._pool = pool
        self._reads = tuple(reads)

    def read(self, split: str, left_out: Counter[str]) -> Iterator[FrozenTrajectory]:
        """The rows of a split; those that cannot be read any more are counted."""

        def skipped(row: SkippedRow) -> None:
            left_out["missing_steps" if row.why == "steps" else row.why] += 1

        return read_version(self._pool, self.version.version, split=split, skipped=skipped, include=self._reads)

    def at(self, position: int) -> FrozenTrajectory | None:
        """See Source."""
        row = self._row(position)
        return None if row is None else read_row(self._pool, row, self._reads)

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
        try:
            return self._pool.get_step(step_id).trajectory_id
        except NotFoundError:
            return None

    def media(self, digest: str) -> bytes:
        """See Source."""
        return self._pool.get_media(digest).data

    def _row(self, position: int) -> DatasetRow | None:
        return next(iter(self._pool.dataset_rows(self.version.version, after=position - 1, limit=1)), None)
