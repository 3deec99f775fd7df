"""What every store offers to keep dataset versions, and to take whole trajectories from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentworld.pool.results import Page
from agentworld.records import AddedTrajectory, DatasetRow, DatasetVersion, Feedback, Reward, WholeTrajectory


class DatasetMethods(Protocol):
    """See Pool. A version is built under its name and a number, row by row, and then frozen under its digest; what is
    frozen never changes. Its trajectories are pinned from the moment that their row is there.
    """

    def begin_dataset(self, name: str) -> int:
        """Begin a version of a dataset; returns the number that its rows are put under. Pools keep what was broken off
        until `drop_building` or the next `collect` a day later.
        """

    def put_dataset_rows(self, building: int, rows: Sequence[DatasetRow]) -> None:
        """Add up to 1,000 rows, all or none, and pin their trajectories: with the next positions, in the order of their
        trajectory ids. NotFoundError where a trajectory or a step is not there, ConflictError where the version is
        frozen.
        """

    def freeze_dataset(self, building: int, version: DatasetVersion) -> DatasetVersion:
        """End it. Where that version is there already the rows just put are dropped, and the one that is there comes
        back. ConflictError where the number of rows is not that of the manifest, NotFoundError where a trajectory of it
        was deleted on request meanwhile, which drops what is not frozen.
        """

    def drop_building(self, building: int) -> None:
        """Take away what was not frozen, with its pins."""

    def get_dataset(self, version: str) -> DatasetVersion:
        """By `NAME@DIGEST`, by `NAME@` and at least 6 digits of it, or by NAME for the one that was frozen last;
        NotFoundError where there is none, ConflictError where several begin so.
        """

    def list_datasets(
        self, *, name: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[DatasetVersion]:
        """One page of frozen versions, the latest first."""

    def dataset_rows(
        self, version: str, *, after: int = -1, limit: int = 100, split: str | None = None
    ) -> list[DatasetRow]:
        """Rows of a frozen version with a position over `after`, in order. Of one whose trajectory was deleted on
        request ids, digests and the split are left; comparisons with it have neither value nor comment.
        """

    def datasets_of(self, trajectory_id: str) -> list[str]:
        """The frozen versions that have it."""

    def feedback_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Feedback]:
        """Everything said of up to 1,000 trajectories themselves, and of up to 1,000 steps; in commit order of each."""

    def rewards_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Reward]:
        """Every reward, of each source, of up to 1,000 trajectories themselves, and of up to 1,000 steps; those that
        were set last come last in each.
        """

    def delete_dataset(self, version: str) -> DatasetVersion:
        """Delete a version with its rows and pins, by its whole name; its trajectories stay until retention."""


class WholeMethods(Protocol):
    """See Pool."""

    def add_whole(self, trajectories: Sequence[WholeTrajectory]) -> list[AddedTrajectory]:
        """Store trajectories that ended elsewhere, with steps and signals: several in one transaction, each whole or
        not at all, so that one with very many steps is a long transaction by itself.

        One that is there with the same `origin` digest is `known`; one with another stays and is `differs`; `deleted`
        was one, or its user, on request. A step or signal that cannot be stored refuses its trajectory, with the
        reason (nothing becomes a dead letter). Policies in force decide on it as on any other.
        """
