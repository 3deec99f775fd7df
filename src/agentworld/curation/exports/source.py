"""A version in a pool, as layouts read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.reading import SkippedRow, read_version, steps_of, whole_trajectory
from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetVersion, Step, Trajectory


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
        for row in self._pool.dataset_rows(self.version.version, after=position - 1, limit=1):
            trajectory = whole_trajectory(self._pool, row.trajectory_id)
            if trajectory is None:
                return None
            found = {step.step_id: step for step in steps_of(self._pool, row.trajectory_id, include=self._reads)}
            if any(each.step_id not in found for each in row.steps):
                return None
            return FrozenTrajectory(row=row, trajectory=trajectory, steps=[found[each.step_id] for each in row.steps])
        return None

    def step(self, step_id: str) -> Step | None:
        """See Source."""
        try:
            return self._pool.get_step(step_id, include=("messages",))
        except NotFoundError:
            return None

    def trajectory(self, trajectory_id: str) -> tuple[Trajectory, list[Step]] | None:
        """See Source."""
        found = whole_trajectory(self._pool, trajectory_id)
        if found is None:
            return None
        steps = steps_of(self._pool, trajectory_id, include=("messages",))
        return found, [step for step in steps if step.excluded_reason is None]

    def media(self, digest: str) -> bytes:
        """See Source."""
        return self._pool.get_media(digest).data
