"""The stores on SQL engines, above the engine: each method is a statement to read or an operation to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal

import msgspec
from sqlalchemy import func, select

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.forest import BLOCK_SIZE
from agentworld.pool import schema
from agentworld.pool.base import Store, check_after, check_limit
from agentworld.pool.bounds import check_new_trajectory
from agentworld.pool.intake import check_include
from agentworld.pool.protocol import AppendResult, DeadLetter, GatewayState, Page, PoolStats
from agentworld.pool.sql import signals, trajectories
from agentworld.pool.sql.append import Appender, PreparedExchange, prepare_all
from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.leases import Leases
from agentworld.pool.sql.reads import STEP, page_of_rows, read_steps
from agentworld.pool.sql.rows import from_json, trajectory_from
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.writer import Writer
from agentworld.records import (
    Batch,
    BatchSpec,
    Event,
    Exchange,
    NewTrajectory,
    Policy,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
    check_id,
    new_id,
)

_e, _d, _x = schema.events.c, schema.dead_letters.c, schema.exchanges.c
_EVENTS = sql(select(schema.events).where(_e.pk > parameter("after")).order_by(_e.pk).limit(parameter("limit")))
_DEAD = sql(select(schema.dead_letters).where(_d.pk > parameter("after")).order_by(_d.pk).limit(parameter("limit")))
_EXCHANGES = sql(
    select(_x.record)
    .join(schema.trajectories, schema.trajectories.c.pk == _x.trajectory)
    .where(schema.trajectories.c.trajectory_id == parameter("id"))
    .order_by(_x.pk)
    .limit(parameter("limit"))
)
_COUNTERS = sql(select(schema.counters))
_LAST_EVENT = sql(select(func.coalesce(func.max(_e.pk), 0)))


class SqlPool(Store):
    """A pool on one SQL engine. `clock` gives seconds since the epoch.

    Writes of all threads go through one writing thread, which groups them into transactions under a lock that all
    processes share; reads are short transactions on connections of their own.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self.url = database.url
        self._database = database
        self._writer = Writer(database, clock)
        self._appender = Appender()
        self._leases = Leases(self._database, self._writer, clock)

    # --- trajectories -----------------------------------------------------------------------------------------
    def create_trajectory(self, new: NewTrajectory) -> Trajectory:
        """See Pool."""
        trajectory_id = check_id(new.trajectory_id or new_id("trj"), "trajectory_id")
        if new.group_id is not None:
            check_id(new.group_id, "group_id")
        check_new_trajectory(new)
        return self._writer.submit(lambda txn: trajectories.create(txn, trajectory_id, new)).result()

    def complete_trajectory(
        self, trajectory_id: str, status: TerminalStatus, reward: float | None = None
    ) -> Trajectory:
        """See Pool."""
        return self._writer.submit(lambda txn: trajectories.complete(txn, trajectory_id, status, reward)).result()

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool."""
        with self._database.reading() as connection:
            rows = connection.execute(trajectories.FIND, {"id": trajectory_id})
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
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Trajectory]:
        """See Pool."""
        filters = {"trajectory_id": trajectory_id, "group_id": group_id, "channel": channel}
        with self._database.reading() as connection:
            rows, more = page_of_rows(connection, "trajectories", where, filters, order, cursor, limit)
        return Page([trajectory_from(row) for row in rows], more)

    # --- steps ------------------------------------------------------------------------------------------------
    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        """See Pool."""
        try:
            prepared = PreparedExchange(exchange)
        except InvalidRequestError as error:
            failed: Future[list[AppendResult]] = Future()
            failed.set_exception(error)
            return failed
        return self._writer.submit(lambda txn: self._appender.append_exchange(txn, prepared))

    def submit_steps(self, steps: Sequence[Step]) -> Future[list[AppendResult]]:
        """See Pool."""
        prepared = prepare_all(steps)
        return self._writer.submit(lambda txn: self._appender.append(txn, prepared))

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
            rows, more = page_of_rows(connection, "steps", where, filters, order, cursor, limit)
            return Page(read_steps(connection, rows, include), more)

    def list_exchanges(self, trajectory_id: str, *, limit: int = 1000) -> list[Exchange]:
        """See Pool."""
        with self._database.reading() as connection:
            found = connection.execute(_EXCHANGES, {"id": trajectory_id, "limit": check_limit(limit)})
        return [msgspec.json.decode(row["record"], type=Exchange) for row in found]

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """See Pool."""
        with self._database.reading() as connection:
            found = connection.execute(_DEAD, {"after": check_after(after), "limit": check_limit(limit)})
        return [
            DeadLetter(*(row[n] for n in ("pk", "step_id", "trajectory_id", "reason", "record", "at"))) for row in found
        ]

    # --- signals ----------------------------------------------------------------------------------------------
    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool."""
        return self._writer.submit(lambda txn: signals.add_rewards(txn, rewards)).result()

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """See Pool."""
        with self._database.reading() as connection:
            found = connection.execute(_EVENTS, {"after": check_after(after), "limit": check_limit(limit)})
        return [
            Event(
                sequence=row["pk"],
                kind=row["kind"],
                at=row["at"],
                trajectory_id=row["trajectory_id"],
                step_id=row["step_id"],
                data=from_json(row["data"], {}),
            )
            for row in found
        ]

    # --- shared server state ----------------------------------------------------------------------------------
    def set_policy(self, policy: Policy) -> Policy:
        """See Pool."""
        self._writer.submit(lambda txn: signals.set_policy(txn, policy)).result()
        return policy

    def set_paused(self, paused: bool) -> None:
        """See Pool."""
        self._writer.submit(lambda txn: signals.set_paused(txn, paused)).result()

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        with self._database.reading() as connection:
            policies = signals.current_policies(connection)
            counters = {row["name"]: row["value"] for row in connection.execute(_COUNTERS)}
        return GatewayState(policies, bool(counters.get(signals.PAUSED)))

    def stats(self) -> PoolStats:
        """See Pool."""
        with self._database.reading() as connection:
            counters: dict[str, int] = {row["name"]: row["value"] for row in connection.execute(_COUNTERS)}
            last_event = connection.execute(_LAST_EVENT)[0][0]

        def named(prefix: str) -> dict[str, int]:
            found = {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix)}
            return {name: number for name, number in found.items() if number}

        return PoolStats(
            trajectories=named("trajectories."),
            steps=counters.get("steps", 0),
            exchanges=counters.get("exchanges", 0),
            excluded_steps=counters.get("steps.excluded", 0),
            tokens_flat=counters.get("tokens_flat", 0),
            tokens_stored=counters.get("blocks", 0) * BLOCK_SIZE + counters.get("tokens_in_tails", 0),
            message_nodes=counters.get("message_nodes", 0),
            rewards=counters.get("rewards", 0),
            batches=named("batches."),
            last_event=last_event,
            failed_exchanges=counters.get("exchanges.error", 0),
            dead_letters=counters.get("dead_letters", 0),
        )

    # --- consuming --------------------------------------------------------------------------------------------
    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        return self._leases.lease(spec, consumer)

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        self._leases.ack(batch_id, epoch)

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        self._leases.release(batch_id, epoch)

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""
        return self._leases.extend(batch_id, epoch, seconds)

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""
        return self._leases.resume(consumer, applied)

    def close(self) -> None:
        """See Pool."""
        self._database.stop_reading()
        self._writer.close()
        self._database.close()
