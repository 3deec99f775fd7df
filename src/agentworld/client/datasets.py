"""Dataset versions over HTTP, for threads and for event loops."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentworld.client import dataset_calls as calls
from agentworld.client.calls import Call
from agentworld.client.frozen import ServerRecords, read_frozen, read_frozen_aside, with_split
from agentworld.curation.datasets.frozen import FrozenTrajectory, Skipped
from agentworld.curation.datasets.provenance import exported_provenance
from agentworld.curation.datasets.results import (
    PROBLEMS,
    SAMPLES,
    DatasetDiff,
    RowOrigin,
    Verification,
    fractions_missed,
)
from agentworld.curation.datasets.surface import DatasetWords
from agentworld.errors import InvalidRequestError
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.results import Page
from agentworld.records import DatasetRow, DatasetVersion, Selection

if TYPE_CHECKING:
    from agentworld.curation.exports import ExportReport

T = TypeVar("T")


class DatasetMethods(DatasetWords):
    """The methods of a factory that are about dataset versions; see agentworld.curation.datasets and Pool."""

    @abstractmethod
    def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    @abstractmethod
    def _fetch(self, path: str) -> bytes:
        """The body of what is at a path."""

    def _exports_from(self) -> DatasetMethods:
        return self

    def dataset_records(self) -> ServerRecords:
        """What an export of a version of the server reads."""
        return ServerRecords(self._send, self._fetch)

    def read_dataset(
        self, version: str, *, split: str | None = None, skipped: Skipped | None = None
    ) -> Iterator[FrozenTrajectory]:
        """See agentworld.read_dataset."""
        return read_frozen(self._send, version, split=split, skipped=skipped)

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
        """Freeze what `selection` selects now; see agentworld.create_dataset. Over HTTP only the end of it is told."""
        made = self._send(calls.create_dataset(name, selection or Selection(), parents, note, created_by))
        progress("freeze", made.rows, made.rows)
        for line in fractions_missed(made):
            say(line)
        return made

    def list_datasets(
        self, *, name: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[DatasetVersion]:
        """See Pool."""
        return self._send(calls.list_datasets(name, cursor, limit))

    def get_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""
        return self._send(calls.get_dataset(version))

    def dataset_rows(
        self, version: str, *, after: int = -1, limit: int = 100, split: str | None = None
    ) -> list[DatasetRow]:
        """See Pool."""
        return self._send(calls.dataset_rows(version, after, limit, split)).items

    def diff_datasets(
        self, version: str, other: str, *, samples: int = SAMPLES, progress: Progress = no_progress
    ) -> DatasetDiff:
        """See agentworld.diff_datasets. Over HTTP only the end of it is told."""
        found = self._send(calls.diff_datasets(version, other, samples))
        progress("compare", 1, 1)
        return found

    def verify_dataset(
        self, version: str, *, problems: int = PROBLEMS, progress: Progress = no_progress
    ) -> Verification:
        """See agentworld.verify_dataset. Over HTTP only the end of it is told."""
        found = self._send(calls.verify_dataset(version, problems))
        progress("verify", found.rows, found.rows)
        return found

    def trace_row(
        self,
        version: str | None = None,
        *,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        exported: Mapping[str, Any] | None = None,
    ) -> RowOrigin:
        """See agentworld.trace_row."""
        return self._send(traced(version, trajectory_id, step_id, exported))

    def delete_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""
        return self._send(calls.delete_dataset(version))


class AsyncDatasetMethods(ABC):
    """As DatasetMethods, for event loops."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T:
        """Send a call and read its reply."""

    @abstractmethod
    async def _fetch(self, path: str) -> bytes:
        """The body of what is at a path."""

    async def read_dataset(
        self, version: str, *, split: str | None = None, skipped: Skipped | None = None
    ) -> AsyncIterator[FrozenTrajectory]:
        """See agentworld.read_dataset."""
        whole = with_split(await self._send(calls.get_dataset(version)), split)
        async for found in read_frozen_aside(self._send, whole.version, split, skipped or (lambda row: None)):
            yield found

    async def export_dataset(self, version: str, layout: str, folder: str | Path, **asked: Any) -> ExportReport:
        """Write a version as files that trainers load; `asked` as in `agentworld.export_dataset`. The files are written
        on this side by a thread, which `progress` and `stopped` are called in. Cancelled, it stops, and nothing stays.
        """
        from agentworld.curation.exports import export_dataset

        loop, ended = asyncio.get_running_loop(), threading.Event()
        stopped: Callable[[], bool] = asked.pop("stopped", lambda: False)

        def send(call: Call[T]) -> T:
            return asyncio.run_coroutine_threadsafe(self._send(call), loop).result()

        def fetch(path: str) -> bytes:
            return asyncio.run_coroutine_threadsafe(self._fetch(path), loop).result()

        def write() -> ExportReport | None:
            try:
                asked["stopped"] = lambda: ended.is_set() or stopped()
                return export_dataset(_Elsewhere(ServerRecords(send, fetch)), version, layout, folder, **asked)
            except KeyboardInterrupt:  # It was stopped.
                return None

        try:
            report = await asyncio.to_thread(write)
        finally:
            ended.set()
        if report is None:
            raise KeyboardInterrupt
        return report

    async def create_dataset(
        self,
        name: str,
        selection: Selection | None = None,
        *,
        parents: Sequence[str] = (),
        note: str | None = None,
        created_by: str | None = None,
    ) -> DatasetVersion:
        """Freeze what `selection` selects now; see agentworld.create_dataset."""
        return await self._send(calls.create_dataset(name, selection or Selection(), parents, note, created_by))

    async def list_datasets(
        self, *, name: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[DatasetVersion]:
        """See Pool."""
        return await self._send(calls.list_datasets(name, cursor, limit))

    async def get_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""
        return await self._send(calls.get_dataset(version))

    async def dataset_rows(
        self, version: str, *, after: int = -1, limit: int = 100, split: str | None = None
    ) -> list[DatasetRow]:
        """See Pool."""
        return (await self._send(calls.dataset_rows(version, after, limit, split))).items

    async def diff_datasets(self, version: str, other: str, *, samples: int = SAMPLES) -> DatasetDiff:
        """See agentworld.diff_datasets."""
        return await self._send(calls.diff_datasets(version, other, samples))

    async def verify_dataset(self, version: str, *, problems: int = PROBLEMS) -> Verification:
        """See agentworld.verify_dataset."""
        return await self._send(calls.verify_dataset(version, problems))

    async def trace_row(
        self,
        version: str | None = None,
        *,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        exported: Mapping[str, Any] | None = None,
    ) -> RowOrigin:
        """See agentworld.trace_row."""
        return await self._send(traced(version, trajectory_id, step_id, exported))

    async def delete_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""
        return await self._send(calls.delete_dataset(version))


class _Elsewhere:
    """What an export reads a version by."""

    def __init__(self, records: ServerRecords) -> None:
        self._records = records

    def dataset_records(self) -> ServerRecords:
        """See agentworld.curation.exports.export.Elsewhere."""
        return self._records


def traced(
    version: str | None, trajectory_id: str | None, step_id: str | None, exported: Mapping[str, Any] | None
) -> Call[RowOrigin]:
    """The call that traces a row; what an exported row says of itself is read here."""
    if exported is not None and trajectory_id is None and step_id is None:
        said = exported_provenance(exported)
        version, trajectory_id = version or said.version, said.trajectory_id
        exported = None
    if exported is not None or version is None:
        raise InvalidRequestError("a version, and one of trajectory_id and step_id, or an exported row", path="row")
    return calls.trace_row(version, trajectory_id, step_id)
