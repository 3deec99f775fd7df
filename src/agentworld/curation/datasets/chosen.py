"""What a selection takes, as queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from agentworld.curation.datasets.reading import in_time, steps_of
from agentworld.errors import QueryError
from agentworld.pool.protocol import Pool
from agentworld.query.lexer import MAX_LENGTH
from agentworld.records import Selection, Step, Trajectory

PAGE = 500
LONGEST_WHERE = MAX_LENGTH - 256
"""Characters that a selection may have, so that an id and what is taken at all can be asked for beside it."""


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
        """Of these trajectories those that may be taken now, by id."""
        begin = f"({self._of_trajectories}) and trajectory_id in ("
        found: dict[str, Trajectory] = {}
        try:
            for some in _lists(trajectory_ids, MAX_LENGTH - len(begin) - 1):
                for records in _trajectories(pool, f"{begin}{some})", self.selection.channel):
                    found |= {one.trajectory_id: one for one in records}
        except QueryError:
            if len(trajectory_ids) < 2:
                raise
            half = len(trajectory_ids) // 2  # Half of them takes half the time.
            return self.records(pool, trajectory_ids[:half]) | self.records(pool, trajectory_ids[half:])
        return found

    def steps(self, pool: Pool, trajectory_id: str) -> Iterator[Step]:
        """The steps of a trajectory that are taken, in commit order, with their messages."""
        channel = self.selection.channel
        where = self._of_steps if self._by_steps else None
        for step in steps_of(pool, trajectory_id, where=where, include=("messages",)):
            if step.readiness in self.taken and channel in (None, step.channel):
                yield step


def with_condition(where: str | None, condition: str) -> str:
    """Both have to hold."""
    return condition if where is None else f"({where}) and {condition}"


def _lists(ids: Sequence[str], room: int) -> Iterator[str]:
    """The ids as lists in quotes, each no longer than `room`; ids have no quotes themselves."""
    some: list[str] = []
    length = 0
    for one in ids:
        if some and length + len(one) + 4 > room:
            yield ", ".join(some)
            some, length = [], 0
        some.append(f"'{one}'")
        length += len(one) + 4
    if some:
        yield ", ".join(some)


def _trajectories(pool: Pool, where: str, channel: str | None) -> Iterator[list[Trajectory]]:
    cursor: str | None = None
    while True:
        page = in_time(partial(pool.list_trajectories, where=where, channel=channel, cursor=cursor, limit=PAGE))
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _steps(pool: Pool, where: str, channel: str | None) -> Iterator[list[Step]]:
    cursor: str | None = None
    while True:
        page = in_time(partial(pool.list_steps, where=where, channel=channel, cursor=cursor, limit=PAGE))
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return
