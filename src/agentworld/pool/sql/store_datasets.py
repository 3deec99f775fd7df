"""Dataset versions of the SQL stores. Building and dropping are bounded transactions; freezing is one."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.pool.base import check_limit, cursor_for, read_cursor
from agentworld.pool.bounds import MAX_INTEGER
from agentworld.pool.dataset_rules import (
    check_building,
    check_dataset_name,
    check_reading,
    check_rows,
    wanted_version,
)
from agentworld.pool.results import Page
from agentworld.pool.sql import datasets
from agentworld.pool.sql.dataset_keeping import DatasetKeeping
from agentworld.pool.sql.dataset_records import pack
from agentworld.records import DatasetRow, DatasetVersion, check_id


class DatasetMethods(DatasetKeeping):
    """See agentworld.pool.dataset_methods."""

    def begin_dataset(self, name: str) -> int:
        """See Pool."""
        check_dataset_name(name)
        return self._writer.submit(lambda txn: datasets.begin(txn, name)).result()

    def put_dataset_rows(self, building: int, rows: Sequence[DatasetRow]) -> None:
        """See Pool."""
        check_building(building)
        with self._database.reading() as reader:
            datasets.building(reader, building)
            checked = check_rows(rows, *datasets.last_row(reader, building))
            datasets.check_trajectories(reader, [row.trajectory_id for row in checked])
            datasets.check_steps(reader, checked)
        packed = [pack(row) for row in checked]
        self._writer.submit(lambda txn: datasets.put(txn, building, packed)).result()

    def freeze_dataset(self, building: int, version: DatasetVersion) -> DatasetVersion:
        """See Pool."""
        check_building(building)
        frozen = self._writer.submit(lambda txn: datasets.freeze(txn, building, version)).result()
        self._drop_rows(building)
        return frozen

    def drop_building(self, building: int) -> None:
        """See Pool."""
        check_building(building)
        if self._writer.submit(lambda txn: datasets.drop(txn, building)).result():
            self._drop_rows(building)

    def get_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""
        wanted = wanted_version(version)
        with self._database.reading() as reader:
            return datasets.manifest_of(datasets.find(reader, wanted))

    def list_datasets(
        self, *, name: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[DatasetVersion]:
        """See Pool."""
        if name is not None:
            check_dataset_name(name)
        before = read_cursor(cursor, "newest")
        check_limit(limit)
        with self._database.reading() as reader:
            rows = datasets.list_versions(reader, name, MAX_INTEGER if before is None else before, limit + 1)
        more = cursor_for(rows[limit - 1]["frozen"], "newest") if len(rows) > limit else None
        return Page([datasets.manifest_of(row) for row in rows[:limit]], more)

    def dataset_rows(
        self, version: str, *, after: int = -1, limit: int = 100, split: str | None = None
    ) -> list[DatasetRow]:
        """See Pool."""
        wanted = wanted_version(version)
        check_reading(after, limit, split)
        with self._database.reading() as reader:
            return datasets.read_rows(reader, datasets.find(reader, wanted)["pk"], after, limit, split)

    def datasets_of(self, trajectory_id: str) -> list[str]:
        """See Pool."""
        check_id(trajectory_id, "trajectory_id")
        with self._database.reading() as reader:
            return datasets.versions_of(reader, trajectory_id)

    def delete_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""
        wanted = wanted_version(version, whole=True)
        number, gone = self._writer.submit(lambda txn: datasets.remove(txn, wanted)).result()
        self._drop_rows(number)
        return gone
