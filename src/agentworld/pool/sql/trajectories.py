"""Creating and completing trajectories inside a transaction."""

from __future__ import annotations

from sqlalchemy import insert, update

from agentworld.errors import NotFoundError
from agentworld.pool import rules, schema
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.rows import creation_columns, select_trajectories, trajectory_from
from agentworld.pool.sql.signals import add_event, add_rewards
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import NewTrajectory, Reward, TerminalStatus, Trajectory

_t = schema.trajectories
FIND = sql(select_trajectories().where(_t.c.trajectory_id == parameter("id")))
_STARTED = ("readiness", "step_count", "prompt_tokens", "response_tokens", "status", "declared", "created_at")
_CREATE = sql(
    insert(_t).values({name: parameter(name) for name in ("pk", "trajectory_id", *rules.CREATION_FIELDS, *_STARTED)})
)
_DECLARE = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values({"declared": 1, **{name: parameter(name) for name in rules.CREATION_FIELDS}})
)
_COMPLETE = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values({name: parameter(name) for name in ("status", "readiness", "completed_at")})
)


def create(txn: Transaction, trajectory_id: str, new: NewTrajectory) -> Trajectory:
    """Create, declare what a step implied, or check that the same is there."""
    row = txn.one(FIND, {"id": trajectory_id})
    if row is None:
        row = imply(txn, trajectory_id, new, declared=True)
    elif row["declared"]:
        rules.check_same_creation(new, trajectory_from(row))
    else:
        txn.execute(_DECLARE, {"row": row["pk"], **creation_columns(new)})
        row = txn.one(FIND, {"id": trajectory_id})
    assert row is not None
    return trajectory_from(row)


def imply(txn: Transaction, trajectory_id: str, new: NewTrajectory, declared: bool = False) -> Row:
    """Insert an open trajectory that is not there; returns its row."""
    started = {
        "pk": txn.next_pk("trajectories"),
        "trajectory_id": trajectory_id,
        "declared": int(declared),
        "status": "open",
        "readiness": "open",
        "step_count": 0,
        "prompt_tokens": 0,
        "response_tokens": 0,
        "created_at": txn.now,
    }
    txn.execute(_CREATE, {**started, **creation_columns(new)})
    txn.count("trajectories.open")
    add_event(txn, "trajectory.created", trajectory_id)
    return find(txn, trajectory_id)


def find(txn: Transaction, trajectory_id: str) -> Row:
    """The trajectory's row; NotFoundError where there is none."""
    row = txn.one(FIND, {"id": trajectory_id})
    if row is None:
        raise NotFoundError(f"no trajectory {trajectory_id!r}", path="trajectory_id")
    return row


def complete(txn: Transaction, trajectory_id: str, status: TerminalStatus, reward: float | None) -> Trajectory:
    """End a trajectory once, with its reward."""
    row = find(txn, trajectory_id)
    there = trajectory_from(row)
    if rules.check_completion(there, status):
        readiness = rules.trajectory_readiness(status, there.reward is not None, there.excluded_reason)
        ended = {"status": status, "readiness": readiness, "completed_at": txn.now}
        txn.execute(_COMPLETE, {"row": row["pk"], **ended})
        txn.count("trajectories.open", -1)
        txn.count(f"trajectories.{status}")
        add_event(txn, "trajectory.completed", trajectory_id, data={"status": status})
    if reward is not None:
        add_rewards(txn, [Reward(value=reward, trajectory_id=trajectory_id, source="complete")])
    return trajectory_from(find(txn, trajectory_id))
