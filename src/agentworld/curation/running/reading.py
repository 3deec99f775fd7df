"""What checks read of a pool: trajectories that have ended, with their steps, and groups that have closed."""

from __future__ import annotations

from collections.abc import Iterator

from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Page, Pool
from agentworld.records import BatchTrajectory, Group, Step, Trajectory

PAGE = 50
STEPS = 500
_ENDED = "not open"
_NOT_WHOLE = frozenset(("deleted", "importing"))


class Reading:
    """The trajectories and groups of a channel, or of all."""

    def __init__(self, pool: Pool, channel: str | None) -> None:
        self._pool = pool
        self._channel = channel

    def trajectories(self, cursor: str | None) -> Iterator[tuple[list[Trajectory], str | None]]:
        """Pages of those that have ended, in the order of their creation, each with the cursor behind it."""
        while True:
            page: Page[Trajectory] = self._pool.list_trajectories(
                where=_ENDED, channel=self._channel, cursor=cursor, limit=PAGE
            )
            cursor = page.next_cursor
            yield [each for each in page.items if self._is_meant(each)], cursor
            if cursor is None:
                return

    def groups(self, cursor: str | None) -> Iterator[tuple[list[Group], str | None]]:
        """Pages of those that have closed, each with the cursor behind it."""
        while True:
            page = self._pool.list_groups(state="closed", channel=self._channel, cursor=cursor, limit=PAGE)
            cursor = page.next_cursor
            yield page.items, cursor
            if cursor is None:
                return

    def trajectory(self, trajectory_id: str) -> Trajectory | None:
        """One that has ended; None where it is not there, is open, or of another channel."""
        try:
            found = self._pool.get_trajectory(trajectory_id)
        except NotFoundError:
            return None
        return found if self._is_meant(found) else None

    def group(self, group_id: str, *, steps: bool) -> list[BatchTrajectory]:
        """The members that have ended of a group that has closed, with or without their steps."""
        try:
            group = self._pool.get_group(group_id)
        except NotFoundError:
            return []
        if group.state != "closed":
            return []
        members: list[BatchTrajectory] = []
        cursor: str | None = None
        while True:
            page = self._pool.list_trajectories(group_id=group_id, channel=self._channel, cursor=cursor, limit=1_000)
            for each in page.items:
                if self._is_meant(each):
                    members.append(self.whole(each) if steps else BatchTrajectory(trajectory=each, steps=[]))
            cursor = page.next_cursor
            if cursor is None:
                return members

    def whole(self, record: Trajectory) -> BatchTrajectory:
        """The trajectory with all its steps, in the order in which they came; ids only where messages are missing."""
        steps = self._steps(record.trajectory_id, ("messages",))
        if any(step.response_message is None and step.response_length for step in steps):
            steps = self._steps(record.trajectory_id, ("messages", "tokens"))
        return BatchTrajectory(trajectory=record, steps=steps)

    def _steps(self, trajectory_id: str, include: tuple[str, ...]) -> list[Step]:
        steps: list[Step] = []
        cursor: str | None = None
        while True:
            page = self._pool.list_steps(trajectory_id=trajectory_id, include=include, cursor=cursor, limit=STEPS)
            steps += page.items
            cursor = page.next_cursor
            if cursor is None:
                return steps

    def _is_meant(self, record: Trajectory) -> bool:
        reasons = (record.excluded_reason or "").split("; ")
        ours = self._channel is None or record.channel == self._channel
        return ours and record.status != "open" and _NOT_WHOLE.isdisjoint(reasons)
