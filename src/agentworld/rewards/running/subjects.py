"""What is judged, read from a pool: trajectories that have ended, with their steps, and groups that have closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentworld.errors import NotFoundError
from agentworld.pool.group_rules import LATE
from agentworld.pool.protocol import Page, Pool
from agentworld.records import BatchTrajectory, Group, Step, Trajectory
from agentworld.rewards.judgements import is_judgement
from agentworld.rewards.protocol import RolloutGroup
from agentworld.rewards.running.settings import RunSettings, in_shard

PAGE = 100
_JUDGED = "status in ('finished', 'truncated')"
# Reasons of steps that are no part of how the run went on, and of trajectories that are not whole.
_NOT_PART = frozenset(("late", "superseded", "aborted"))
_NOT_WHOLE = frozenset(("deleted", "importing"))


class Subjects:
    """The trajectories and groups that a run is over. Judgements are none of them, unless their channel is named: what
    judges said would otherwise be judged again, and that too.
    """

    def __init__(self, pool: Pool, settings: RunSettings) -> None:
        self._pool = pool
        self._channel = settings.channel
        self._shard = settings.shard
        self._where = _JUDGED if settings.where is None else f"({settings.where}) and not open"

    def trajectories(
        self, cursor: str | None, room: Callable[[], int | None]
    ) -> Iterator[tuple[list[Trajectory], str | None]]:
        """Pages of those that match, in the order of their creation, each with the cursor behind it.

        A page is no longer than `room` says, so that a run that ends there has done with whole pages.
        """
        while True:
            page: Page[Trajectory] = self._pool.list_trajectories(
                where=self._where, channel=self._channel, cursor=cursor, limit=_size(room())
            )
            cursor = page.next_cursor
            yield [each for each in page.items if self._own(each)], cursor
            if cursor is None:
                return

    def groups(self, cursor: str | None, room: Callable[[], int | None]) -> Iterator[tuple[list[Group], str | None]]:
        """Pages of the groups that have closed, likewise."""
        while True:
            page = self._pool.list_groups(state="closed", channel=self._channel, cursor=cursor, limit=_size(room()))
            cursor = page.next_cursor
            yield [each for each in page.items if in_shard(each.group_id, self._shard)], cursor
            if cursor is None:
                return

    def run(self, trajectory_id: str) -> BatchTrajectory | None:
        """The trajectory with its steps, where it is there and matches."""
        found = next(self._matching(trajectory_id=trajectory_id), None)
        return None if found is None else self.read(found)

    def group(self, group_id: str) -> RolloutGroup | None:
        """The group with its members that match and were no later than its close, where it has closed and any do."""
        try:
            group = self._pool.get_group(group_id)
        except NotFoundError:
            return None
        if group.state != "closed" or not in_shard(group_id, self._shard):
            return None
        found = [each for each in self._matching(group_id=group_id) if LATE not in _reasons(each)]
        members = tuple(self.read(each) for each in found)
        return RolloutGroup(group_id=group_id, members=members) if members else None

    def read(self, record: Trajectory) -> BatchTrajectory:
        """The trajectory with its steps, in the order in which they came, but for those that are no part of it."""
        steps: list[Step] = []
        cursor: str | None = None
        while True:
            page = self._pool.list_steps(
                trajectory_id=record.trajectory_id, include=("tokens", "messages"), cursor=cursor, limit=PAGE
            )
            steps += [each for each in page.items if _NOT_PART.isdisjoint(_reasons(each))]
            cursor = page.next_cursor
            if cursor is None:
                return BatchTrajectory(trajectory=record, steps=steps)

    def _matching(self, *, trajectory_id: str | None = None, group_id: str | None = None) -> Iterator[Trajectory]:
        cursor: str | None = None
        while True:
            page = self._pool.list_trajectories(
                where=self._where,
                trajectory_id=trajectory_id,
                group_id=group_id,
                channel=self._channel,
                cursor=cursor,
                limit=PAGE,
            )
            yield from (each for each in page.items if self._own(each))
            cursor = page.next_cursor
            if cursor is None:
                return

    def _own(self, record: Trajectory) -> bool:
        whole = _NOT_WHOLE.isdisjoint(_reasons(record))
        if self._channel is None and is_judgement(record):
            return False
        return whole and in_shard(record.group_id or record.trajectory_id, self._shard)


def _reasons(record: Trajectory | Step) -> list[str]:
    return (record.excluded_reason or "").split("; ")


def _size(room: int | None) -> int:
    return PAGE if room is None else max(1, min(PAGE, room))
