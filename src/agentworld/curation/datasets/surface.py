"""Dataset versions as methods: the words that a pool in this process and a client of a server have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentworld.curation.datasets.results import PROBLEMS, SAMPLES, DatasetDiff, RowOrigin, Verification
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetVersion, Selection

if TYPE_CHECKING:
    from agentworld.curation.datasets.frozen import FrozenTrajectory, Skipped
    from agentworld.curation.exports import ExportReport
    from agentworld.curation.exports.export import Elsewhere


class DatasetWords(ABC):
    """What each does is said in the function of its name (`agentworld.create_dataset`, ...)."""

    @abstractmethod
    def create_dataset(
        self,
        name: str,
        selection: Selection | None = None,
        *,
        parents: Sequence[str] = (),
        note: str | None = None,
        created_by: str | None = None,
        progress: Progress = no_progress,
        say: Callable[[str], None] = lambda line: None,
    ) -> DatasetVersion:
        """Freeze what `selection` selects now."""

    @abstractmethod
    def read_dataset(
        self, version: str, *, split: str | None = None, skipped: Skipped | None = None
    ) -> Iterator[FrozenTrajectory]:
        """The rows of a version with their trajectories and steps."""

    @abstractmethod
    def diff_datasets(
        self, version: str, other: str, *, samples: int = SAMPLES, progress: Progress = no_progress
    ) -> DatasetDiff:
        """How two versions differ."""

    @abstractmethod
    def verify_dataset(
        self, version: str, *, problems: int = PROBLEMS, progress: Progress = no_progress
    ) -> Verification:
        """Compute every digest of a version again."""

    @abstractmethod
    def trace_row(
        self,
        version: str | None = None,
        *,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        exported: Mapping[str, Any] | None = None,
    ) -> RowOrigin:
        """Where a row comes from."""

    @abstractmethod
    def _exports_from(self) -> Pool | Elsewhere:
        """What `agentworld.export_dataset` reads."""

    def export_dataset(self, version: str, layout: str, folder: str | Path, **asked: Any) -> ExportReport:
        """Write a version as files that trainers load; `asked` as in `agentworld.export_dataset`. The files are made on
        this side, also of a server's version.
        """
        from agentworld.curation.exports import export_dataset

        return export_dataset(self._exports_from(), version, layout, folder, **asked)


class DatasetSurface(DatasetWords):
    """Those of a pool in this process. What they need is loaded when they are called."""

    store: Pool

    def _exports_from(self) -> Pool:
        return self.store

    def create_dataset(
        self,
        name: str,
        selection: Selection | None = None,
        *,
        parents: Sequence[str] = (),
        note: str | None = None,
        created_by: str | None = None,
        progress: Progress = no_progress,
        say: Callable[[str], None] = lambda line: None,
    ) -> DatasetVersion:
        """See DatasetWords."""
        from agentworld.curation.datasets.selecting import create_dataset

        return create_dataset(
            self.store,
            name,
            selection,
            parents=parents,
            note=note,
            created_by=created_by,
            progress=progress,
            say=say,
        )

    def read_dataset(
        self, version: str, *, split: str | None = None, skipped: Skipped | None = None
    ) -> Iterator[FrozenTrajectory]:
        """See DatasetWords."""
        from agentworld.curation.datasets.reading import read_version

        return read_version(self.store, version, split=split, skipped=skipped)

    def diff_datasets(
        self, version: str, other: str, *, samples: int = SAMPLES, progress: Progress = no_progress
    ) -> DatasetDiff:
        """See DatasetWords."""
        from agentworld.curation.datasets.comparing import diff_datasets

        return diff_datasets(self.store, version, other, samples=samples, progress=progress)

    def verify_dataset(
        self, version: str, *, problems: int = PROBLEMS, progress: Progress = no_progress
    ) -> Verification:
        """See DatasetWords."""
        from agentworld.curation.datasets.verifying import verify_dataset

        return verify_dataset(self.store, version, problems=problems, progress=progress)

    def trace_row(
        self,
        version: str | None = None,
        *,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        exported: Mapping[str, Any] | None = None,
    ) -> RowOrigin:
        """See DatasetWords."""
        from agentworld.curation.datasets.tracing import trace_row

        return trace_row(self.store, version, trajectory_id=trajectory_id, step_id=step_id, exported=exported)
