"""What every store offers to keep, delete, check, save and move what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from agentworld.pool.keeping.records import (
    Collection,
    Deletion,
    Pin,
    Problem,
    Progress,
    Retention,
    Tombstone,
    no_progress,
)
from agentworld.pool.parquet.manifest import Imported, Manifest


class KeepingMethods(Protocol):
    """See Pool."""

    def pin(self, owner_kind: str, owner: str, trajectory_ids: Sequence[str]) -> int:
        """Hold trajectories against retention, for an owner such as dataset `math-v3`; returns how many pins are new.

        All or none: NotFoundError where one is not there. Deletion on request beats pins.
        """

    def unpin(self, owner_kind: str, owner: str) -> int:
        """Take all pins of an owner away; returns how many there were."""

    def pins(
        self,
        *,
        owner_kind: str | None = None,
        owner: str | None = None,
        trajectory_id: str | None = None,
        limit: int = 1000,
    ) -> list[Pin]:
        """Pins by owner and trajectory."""

    def collect(
        self,
        retention: Retention | None = None,
        *,
        dry_run: bool = False,
        include_waiting: bool = False,
        progress: Progress = no_progress,
    ) -> Collection:
        """Take out what retention names, then garbage: content that nothing points at any more. In bounded
        transactions beside writers; what was broken off is gone on with by the next call.

        Never: trajectories that are open or pinned, and what a running lease holds. What a consumer has not had yet
        stays unless `include_waiting`. Without `retention` only garbage goes; media wait a day for their message.
        """

    def delete_trajectories(
        self, trajectory_ids: Sequence[str], reason: str | None = None, *, progress: Progress = no_progress
    ) -> Deletion:
        """Delete trajectories for good, whatever pins or leases hold them: steps, calls, signals, dead letters, and the
        content that nobody else references. A tombstone stays of each (id, reason, time), an event
        `trajectory.deleted`, and the trajectory's earlier events with their ids but without what they told. What comes
        later for it is refused. A batch that holds it loses it, and can still be acknowledged.

        Idempotent. Nothing of it can be read afterwards; `purge` takes its bytes from the disk too.
        """

    def delete_user(self, user: str, reason: str | None = None, *, progress: Progress = no_progress) -> Deletion:
        """`delete_trajectories` for everything of one user (`NewTrajectory.user`)."""

    def tombstones(self, after: int = 0, limit: int = 100) -> list[Tombstone]:
        """What was deleted on request, with a sequence over `after`, in order."""

    def purge(self, *, progress: Progress = no_progress) -> None:
        """Rewrite the pool so that no file of it holds what was deleted. Writers wait meanwhile."""

    def check(self, *, progress: Progress = no_progress, deep: bool = True) -> list[Problem]:
        """Every problem of the pool, empty where it is sound: counts, references, sequences, leases and, with `deep`,
        the digest of all content computed again. Changes nothing, and runs beside writers.
        """

    def backup(self, path: Path, *, progress: Progress = no_progress) -> None:
        """Write the whole pool, media included, into one archive at `path` while it is in use; ConfigError where
        something is there. The archive is an SQLite pool itself; `agentworld.pool.restore` makes a pool of it.
        """

    def export_parquet(
        self,
        folder: Path,
        *,
        where: str | None = None,
        channel: str | None = None,
        dataset: str | None = None,
        progress: Progress = no_progress,
    ) -> Manifest:
        """Write the trajectories that match, or those of a dataset version, with all that belongs to them, as Parquet
        files into a new folder.

        Each trajectory is as it was at one moment; one that comes meanwhile may be in it or not. A dataset version is
        in it where all of its trajectories are that have not been deleted.
        """

    def import_parquet(self, folder: Path, *, progress: Progress = no_progress) -> Imported:
        """Read an export. Trajectories that are there already stay as they are, so that it can be done again; a step
        that cannot be stored becomes a dead letter. Dataset versions that are not there are restored.
        """
