"""The in-memory store: plain dictionaries under one lock, for tests and short scripts; it ends with the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Literal, TypeVar

from agentworld.errors import AgentWorldError, NotFoundError
from agentworld.pool.arguments import listed
from agentworld.pool.base import check_limit, check_order, cursor_for, read_cursor
from agentworld.pool.bounds import checked_trajectory
from agentworld.pool.intake import check_include
from agentworld.pool.memory import trajectories
from agentworld.pool.memory.append import append_exchange, append_steps
from agentworld.pool.memory.state import copied, shown
from agentworld.pool.memory.store_call_marks import CallMarkMethods
from agentworld.pool.memory.store_curation import CurationMethods
from agentworld.pool.memory.store_datasets import DatasetMethods
from agentworld.pool.memory.store_evaluations import EvaluationMethods
from agentworld.pool.memory.store_keeping import KeepingMethods
from agentworld.pool.memory.store_reads import ReadMethods
from agentworld.pool.memory.store_reviews import ReviewMethods
from agentworld.pool.memory.store_signals import SignalMethods
from agentworld.pool.own_channel import Named, named_by_steps
from agentworld.pool.plain_values import as_number
from agentworld.pool.protocol import AppendResult, Page, Rejected
from agentworld.pool.sorting import Entry, comes_after, cursor_after, in_order, read_cursor_after, read_sort
from agentworld.records import (
    Exchange,
    NewTrajectory,
    Step,
    TerminalStatus,
    Trajectory,
    check_id,
    new_id,
)

R = TypeVar("R")


class MemoryPool(
    SignalMethods,
    CallMarkMethods,
    KeepingMethods,
    ReadMethods,
    CurationMethods,
    ReviewMethods,
    EvaluationMethods,
    DatasetMethods,
):
    """A pool in this process's memory. `clock` gives seconds since the epoch."""

    # --- trajectories -----------------------------------------------------------------------------------------
    def create_trajectory(self, new: NewTrajectory, *, own_channel: str | None = None) -> Trajectory:
        """See Pool."""
        trajectory_id = check_id(new.trajectory_id or new_id("trj"), "trajectory_id")
        if new.group_id is not None:
            check_id(new.group_id, "group_id")
        new = checked_trajectory(new)
        groups = frozenset(() if new.group_id is None else (new.group_id,))
        with self._open():
            self._state.check_own(own_channel, Named(frozenset((trajectory_id,)), groups))
            return shown(trajectories.create(self._state, trajectory_id, new))

    def complete_trajectory(
        self,
        trajectory_id: str,
        status: TerminalStatus,
        reward: float | None = None,
        *,
        own_channel: str | None = None,
    ) -> Trajectory:
        """See Pool."""
        with self._open():
            self._state.check_own(own_channel, Named(frozenset((trajectory_id,))))
            return shown(trajectories.complete(self._state, trajectory_id, status, as_number(reward)))

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool."""
        with self._open():
            return shown(self._state.trajectory(trajectory_id))

    def list_trajectories(
        self,
        *,
        where: str | None = None,
        trajectory_id: str | None = None,
        group_id: str | None = None,
        channel: str | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        sort: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Trajectory]:
        """See Pool."""
        expression = self._state.query(where, "trajectories")
        with self._open():
            rows = [
                (self._state.ordinals[found.trajectory_id], found)
                for found in self._state.trajectories.values()
                if trajectory_id in (None, found.trajectory_id)
                and group_id in (None, found.group_id)
                and channel in (None, found.channel)
                and self._state.trajectory_matches(expression, found)
            ]
            page = _page(rows, order, cursor, limit) if sort is None else _sorted(rows, sort, order, cursor, limit)
            return Page([shown(found) for found in page.items], page.next_cursor)

    # --- steps ------------------------------------------------------------------------------------------------
    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        """See Pool."""
        return self._done(lambda: append_exchange(self._state, exchange))

    def submit_steps(
        self, steps: Sequence[Step | Rejected], *, own_channel: str | None = None
    ) -> Future[list[AppendResult]]:
        """See Pool."""
        sent = listed(steps, "Step", "steps")

        def write() -> list[AppendResult]:
            self._state.check_own(own_channel, named_by_steps(sent))
            return append_steps(self._state, sent)

        return self._done(write)

    def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """See Pool."""
        check_include(include)
        with self._open():
            found = self._state.steps.get(step_id)
            if found is None:
                raise NotFoundError(f"no step {step_id!r}", path="step_id")
            return self._state.read(found, include)

    def list_steps(
        self,
        *,
        where: str | None = None,
        trajectory_id: str | None = None,
        group_id: str | None = None,
        channel: str | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        cursor: str | None = None,
        limit: int = 100,
        include: Sequence[str] = (),
    ) -> Page[Step]:
        """See Pool."""
        check_include(include)
        expression = self._state.query(where, "steps")
        with self._open():
            ids: Iterable[str] = (
                self._state.steps if trajectory_id is None else self._state.steps_of.get(trajectory_id, [])
            )
            rows = [
                (found.ordinal, found)
                for found in map(self._state.steps.__getitem__, ids)
                if group_id in (None, self._state.trajectories[found.step.trajectory_id].group_id)
                and channel in (None, found.step.channel)
                and self._state.step_matches(expression, found)
            ]
            page = _page(rows, order, cursor, limit)
            return Page([self._state.read(found, include) for found in page.items], page.next_cursor)

    def list_exchanges(
        self, trajectory_id: str, *, order: Literal["oldest", "newest"] = "oldest", limit: int = 1000
    ) -> list[Exchange]:
        """See Pool."""
        check_order(order)
        with self._open():
            found = [kept for _, kept in self._state.exchanges.values() if kept.trajectory_id == trajectory_id]
            if order == "newest":
                found.reverse()
            return [copied(kept) for kept in found[: check_limit(limit)]]

    def _done(self, work: Callable[[], list[AppendResult]]) -> Future[list[AppendResult]]:
        future: Future[list[AppendResult]] = Future()
        with self._open():
            try:
                future.set_result(work())
            except AgentWorldError as error:
                future.set_exception(error)
        return future


def _page(rows: list[tuple[int, R]], order: str, cursor: str | None, limit: int) -> Page[R]:
    after = read_cursor(cursor, order)
    check_limit(limit)
    rows.sort(key=lambda row: row[0], reverse=order == "newest")
    if after is not None:
        rows = [row for row in rows if (row[0] < after if order == "newest" else row[0] > after)]
    more = cursor_for(rows[limit - 1][0], order) if len(rows) > limit else None
    return Page([row[1] for row in rows[:limit]], more)


def _sorted(
    rows: list[tuple[int, Trajectory]], sort: str, order: str, cursor: str | None, limit: int
) -> Page[Trajectory]:
    by = read_sort(sort, order)
    after = read_cursor_after(cursor, by)
    check_limit(limit)
    found = dict(rows)
    entries = in_order((Entry(getattr(each, by.name), number) for number, each in rows), by)
    left = [entry for entry in entries if comes_after(entry, after, by)]
    more = cursor_after(by, left[limit - 1]) if len(left) > limit else None
    return Page([found[entry.number] for entry in left[:limit]], more)
