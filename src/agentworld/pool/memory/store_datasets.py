"""Dataset versions and whole trajectories of the in-memory store."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.errors import ConflictError, NotFoundError
from agentworld.pool.arguments import listed
from agentworld.pool.base import check_limit, cursor_for, read_cursor
from agentworld.pool.dataset_rules import (
    Wanted,
    check_building,
    check_count,
    check_dataset_name,
    check_manifest,
    check_reading,
    check_rows,
    no_building,
    no_version,
    several_versions,
    wanted_version,
)
from agentworld.pool.memory.state import BuiltDataset, copied
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.pool.memory.whole import add_whole
from agentworld.pool.results import Page
from agentworld.records import AddedTrajectory, DatasetRow, DatasetVersion, WholeTrajectory, check_id


class DatasetMethods(MemoryStore):
    """See agentworld.pool.dataset_methods."""

    def begin_dataset(self, name: str) -> int:
        """See Pool."""
        check_dataset_name(name)
        with self._open():
            self._state.last_dataset += 1
            self._state.datasets[self._state.last_dataset] = BuiltDataset(name, self._state.clock())
            return self._state.last_dataset

    def put_dataset_rows(self, building: int, rows: Sequence[DatasetRow]) -> None:
        """See Pool."""
        check_building(building)
        with self._open():
            built = self._building(building)
            last = built.rows[-1].trajectory_id if built.rows else ""
            checked = check_rows(rows, len(built.rows), last)
            for number, row in enumerate(checked):
                path = f"rows[{number}]"
                self._state.trajectory(row.trajectory_id, f"{path}.trajectory_id")
                for place, step in enumerate(row.steps):
                    found = self._state.steps.get(step.step_id)
                    if found is None or found.step.trajectory_id != row.trajectory_id:
                        raise NotFoundError(
                            f"trajectory {row.trajectory_id!r} has no step {step.step_id!r}",
                            path=f"{path}.steps[{place}].step_id",
                        )
            built.rows += checked
            built.put_at += [self._state.clock()] * len(checked)

    def freeze_dataset(self, building: int, version: DatasetVersion) -> DatasetVersion:
        """See Pool."""
        check_building(building)
        with self._open():
            built = self._building(building)
            version = check_manifest(version, built.name)
            check_count(version, len(built.rows))
            there = self._found(wanted_version(version.version, whole=True))
            if there is not None and there.version is not None:
                del self._state.datasets[building]
                return copied(there.version)
            data = {"version": version.version, "rows": version.rows, "steps": version.steps}
            self._state.add_event("dataset.frozen", data=data, channel=version.selection.channel)
            built.version, built.frozen = version, len(self._state.events)
            return copied(version)

    def drop_building(self, building: int) -> None:
        """See Pool."""
        check_building(building)
        with self._open():
            built = self._state.datasets.get(building)
            if built is not None:
                self._building(building)
                del self._state.datasets[building]

    def get_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""
        wanted = wanted_version(version)
        with self._open():
            return copied(self._version(wanted)[1])

    def list_datasets(
        self, *, name: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[DatasetVersion]:
        """See Pool."""
        if name is not None:
            check_dataset_name(name)
        before = read_cursor(cursor, "newest")
        check_limit(limit)
        with self._open():
            found = [
                (built.frozen, built.version)
                for built in self._state.datasets.values()
                if built.version is not None
                and name in (None, built.name)
                and (before is None or built.frozen < before)
            ]
            found.sort(key=lambda one: one[0], reverse=True)
            more = cursor_for(found[limit - 1][0], "newest") if len(found) > limit else None
            return Page([copied(version) for _, version in found[:limit]], more)

    def dataset_rows(
        self, version: str, *, after: int = -1, limit: int = 100, split: str | None = None
    ) -> list[DatasetRow]:
        """See Pool."""
        wanted = wanted_version(version)
        check_reading(after, limit, split)
        with self._open():
            rows = self._version(wanted)[0].rows[after + 1 :]
            return [copied(row) for row in rows if split in (None, row.split)][:limit]

    def datasets_of(self, trajectory_id: str) -> list[str]:
        """See Pool."""
        check_id(trajectory_id, "trajectory_id")
        with self._open():
            return sorted(
                built.version.version
                for built in self._state.datasets.values()
                if built.version is not None and any(row.trajectory_id == trajectory_id for row in built.rows)
            )

    def delete_dataset(self, version: str) -> DatasetVersion:
        """See Pool."""
        wanted = wanted_version(version, whole=True)
        with self._open():
            _, gone = self._version(wanted)
            self._state.datasets = {n: one for n, one in self._state.datasets.items() if one.version is not gone}
            data = {"version": gone.version}
            self._state.add_event("dataset.deleted", data=data, channel=gone.selection.channel)
            return gone

    def add_whole(self, trajectories: Sequence[WholeTrajectory]) -> list[AddedTrajectory]:
        """See Pool."""
        sent = listed(trajectories, "WholeTrajectory", "trajectories")
        results = []
        for one in sent:
            with self._open():
                results.append(add_whole(self._state, one))
        return results

    def _building(self, building: int) -> BuiltDataset:
        built = self._state.datasets.get(building)
        if built is None:
            raise no_building(building)
        if built.version is not None:
            raise ConflictError(f"{built.version.version} is frozen", path="building", hint="Begin another version")
        return built

    def _found(self, wanted: Wanted) -> BuiltDataset | None:
        of_name = [built for built in self._state.datasets.values() if built.version and built.name == wanted.name]
        if wanted.digits is None:
            return max(of_name, key=lambda built: built.frozen, default=None)
        found = [built for built in of_name if built.version and built.version.digest.startswith(wanted.digits)]
        if len(found) > 1:
            raise several_versions(wanted, [built.version.version for built in found if built.version])
        return found[0] if found else None

    def _version(self, wanted: Wanted) -> tuple[BuiltDataset, DatasetVersion]:
        found = self._found(wanted)
        if found is None or found.version is None:
            raise no_version(wanted)
        return found, found.version
