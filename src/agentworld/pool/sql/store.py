"""The stores on SQL engines, above the engine: each method is a statement to read or an operation to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal

from sqlalchemy import select

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool import schema
from agentworld.pool.arguments import listed
from agentworld.pool.base import check_limit, check_order
from agentworld.pool.bounds import checked_trajectory
from agentworld.pool.exact_text import read_json
from agentworld.pool.intake import check_include
from agentworld.pool.own_channel import Named, named_by_steps
from agentworld.pool.plain_values import as_number
from agentworld.pool.protocol import AppendResult, Page, Rejected
from agentworld.pool.sql import trajectories
from agentworld.pool.sql.append import Appender
from agentworld.pool.sql.append_intake import PreparedExchange, prepare_all
from agentworld.pool.sql.append_statements import compile_all
from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.own_channel import submit_own
from agentworld.pool.sql.pages import page_of_rows
from agentworld.pool.sql.reads import STEP, read_steps
from agentworld.pool.sql.rows import trajectory_from
from agentworld.pool.sql.sorted_pages import sorted_page
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.store_batches import BatchMethods
from agentworld.pool.sql.store_call_marks import CallMarkMethods
from agentworld.pool.sql.store_curation import CurationMethods
from agentworld.pool.sql.store_datasets import DatasetMethods
from agentworld.pool.sql.store_evaluations import EvaluationMethods
from agentworld.pool.sql.store_parquet import ParquetMethods
from agentworld.pool.sql.store_reads import ReadMethods
from agentworld.pool.sql.store_reviews import ReviewMethods
from agentworld.pool.sql.store_signals import SignalMethods
from agentworld.pool.sql.store_slices import SliceMethods
from agentworld.pool.sql.store_state import StateMethods
from agentworld.pool.sql.store_whole import WholeMethods
from agentworld.pool.sql.trajectories import Completion, Creation
from agentworld.records import (
    Exchange,
    NewTrajectory,
    Step,
    TerminalStatus,
    Trajectory,
    check_id,
    new_id,
)

_x = schema.exchanges.c
_of_trajectory = (
    select(_x.record)
    .join(schema.trajectories, schema.trajectories.c.pk == _x.trajectory)
    .where(schema.trajectories.c.trajectory_id == parameter("id"))
    .limit(parameter("limit"))
)
_EXCHANGES = {"oldest": sql(_of_trajectory.order_by(_x.pk)), "newest": sql(_of_trajectory.order_by(_x.pk.desc()))}


class SqlPool(
    SignalMethods,
    StateMethods,
    CallMarkMethods,
    BatchMethods,
    ParquetMethods,
    ReadMethods,
    SliceMethods,
    CurationMethods,
    ReviewMethods,
    EvaluationMethods,
    DatasetMethods,
    WholeMethods,
):
    """A pool on one SQL engine. `clock` gives seconds since the epoch.

    Writes of all threads go through one writing thread, which groups them into transactions under a lock that all
    processes share; reads are short transactions on connections of their own.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        super().__init__(database, clock)
        self._appender = Appender()

    # --- trajectories -----------------------------------------------------------------------------------------
    def create_trajectory(self, new: NewTrajectory, *, own_channel: str | None = None) -> Trajectory:
        """See Pool."""
        trajectory_id = check_id(new.trajectory_id or new_id("trj"), "trajectory_id")
        if new.group_id is not None:
            check_id(new.group_id, "group_id")
        new = checked_trajectory(new)
        asked = Creation(trajectory_id, new)
        groups = frozenset(() if new.group_id is None else (new.group_id,))
        return submit_own(
            self._writer,
            trajectories.create_all,
            asked,
            1,
            own_channel,
            lambda: Named(frozenset((trajectory_id,)), groups),
        ).result()

    def complete_trajectory(
        self,
        trajectory_id: str,
        status: TerminalStatus,
        reward: float | None = None,
        *,
        own_channel: str | None = None,
    ) -> Trajectory:
        """See Pool."""
        asked = Completion(trajectory_id, status, as_number(reward))
        named = Named(frozenset((trajectory_id,)))
        return submit_own(self._writer, trajectories.complete_all, asked, 1, own_channel, lambda: named).result()

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool."""
        rows = self._database.look(trajectories.FIND, {"id": trajectory_id})
        if not rows:
            raise NotFoundError(f"no trajectory {trajectory_id!r}", path="trajectory_id")
        return trajectory_from(rows[0])

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
        filters = {"trajectory_id": trajectory_id, "group_id": group_id, "channel": channel}
        with self._database.reading() as connection:
            if sort is not None:
                found = sorted_page(connection, where, filters, sort, order, cursor, limit, self._clock())
            else:
                found = page_of_rows(connection, "trajectories", where, filters, order, cursor, limit, self._clock())
        return Page([trajectory_from(row) for row in found.rows], *found[1:])

    # --- steps ------------------------------------------------------------------------------------------------
    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        """See Pool."""
        try:
            prepared = PreparedExchange(exchange)
        except InvalidRequestError as error:
            failed: Future[list[AppendResult]] = Future()
            failed.set_exception(error)
            return failed
        compile_all(self._database.engine)
        return self._writer.submit_together(self._appender.append_all, prepared, len(prepared.steps) + 1)

    def submit_steps(
        self, steps: Sequence[Step | Rejected], *, own_channel: str | None = None
    ) -> Future[list[AppendResult]]:
        """See Pool."""
        sent = listed(steps, "Step", "steps")
        prepared = prepare_all(sent)
        compile_all(self._database.engine)
        return submit_own(
            self._writer, self._appender.append_all, prepared, len(prepared), own_channel, lambda: named_by_steps(sent)
        )

    def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """See Pool."""
        with self._database.reading() as connection:
            rows = connection.execute(STEP, {"id": step_id})
            if not rows:
                raise NotFoundError(f"no step {step_id!r}", path="step_id")
            return read_steps(connection, rows, include)[0]

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
        filters = {"trajectory_id": trajectory_id, "group_id": group_id, "channel": channel}
        with self._database.reading() as connection:
            found = page_of_rows(connection, "steps", where, filters, order, cursor, limit, self._clock())
            return Page(read_steps(connection, found.rows, include), *found[1:])

    def list_exchanges(
        self, trajectory_id: str, *, order: Literal["oldest", "newest"] = "oldest", limit: int = 1000
    ) -> list[Exchange]:
        """See Pool."""
        check_order(order)
        with self._database.reading() as connection:
            found = connection.execute(_EXCHANGES[order], {"id": trajectory_id, "limit": check_limit(limit)})
        return [read_json(row["record"], Exchange) for row in found]
