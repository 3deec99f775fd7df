"""What a selection takes, as queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentworld.curation.datasets.reading import steps_of
from agentworld.pool.protocol import Pool
from agentworld.records import Selection, Step, Trajectory

PAGE = 500


class Chosen:
    """The queries of a selection. `taken`: the readiness of trajectories that it takes."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.taken = ("complete", "ready") if selection.unrewarded else ("ready",)
        self._state = "complete" if selection.unrewarded else "ready"
        self._by_steps = selection.unit == "step"
        self._of_trajectories = self._state if self._by_steps else with_condition(selection.where, self._state)
        self._of_steps = with_condition(selection.where if self._by_steps else None, self._state)

    def trajectories(self, pool: Pool) -> Iterator[list[str]]:
        """The ids of those that are selected, page by page in no order that means anything; one can come again."""
        if self._by_steps:
            for steps in _steps(pool, self._of_steps, self.selection.channel):
                yield list(dict.fromkeys(step.trajectory_id for step in steps))
            return
        where = f"({self._of_trajectories}) and step_count > 0"
        for found in _trajectories(pool, where, self.selection.channel):
            yield [one.trajectory_id for one in found]

    def records(self, pool: Pool, trajectory_ids: Sequence[str]) -> dict[str, Trajectory]:
        """Of up to 100 trajectories those that may be taken now, by id."""
        listed = ", ".join(f"'{one}'" for one in trajectory_ids)  # Ids have no quotes.
        where = f"({self._of_trajectories}) and trajectory_id in ({listed})"
        return {one.trajectory_id: one for found in _trajectories(pool, where, self.selection.channel) for one in found}

    def steps(self, pool: Pool, trajectory_id: str) -> Iterator[Step]:
        """The steps of a trajectory that are taken, in commit order, with their messages."""
        channel = self.selection.channel
        for step in steps_of(pool, trajectory_id, where=self._of_steps, include=("messages",)):
            if channel is None or step.channel == channel:
                yield step


def with_condition(where: str | None, condition: str) -> str:
    """Both have to hold."""
    return condition if where is None else f"({where}) and {condition}"


def _trajectories(pool: Pool, where: str, channel: str | None) -> Iterator[list[Trajectory]]:
    cursor: str | None = None
    while True:
        page = pool.list_trajectories(where=where, channel=channel, cursor=cursor, limit=PAGE)
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _steps(pool: Pool, where: str, channel: str | None) -> Iterator[list[Step]]:
    cursor: str | None = None
    while True:
        page = pool.list_steps(where=where, channel=channel, cursor=cursor, limit=PAGE)
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return
