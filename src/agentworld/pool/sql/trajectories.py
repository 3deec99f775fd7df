"""Creating and completing trajectories inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import insert, update

from agentworld.errors import NotFoundError
from agentworld.pool import rules, schema
from agentworld.pool.counters import CHANNEL_TRAJECTORIES, READINESS, TRAJECTORIES
from agentworld.pool.group_rules import LATE
from agentworld.pool.sql import groups
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.rewards import apply_reward, keep_reward
from agentworld.pool.sql.rows import CREATION_COLUMNS, creation_columns, select_trajectories, trajectory_from
from agentworld.pool.sql.signals import apply_awaited, check_not_deleted
from agentworld.pool.sql.standing import current_group, exclude, joined_group, settle
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import NewTrajectory, Reward, TerminalStatus, Trajectory

_t = schema.trajectories
FIND = sql(select_trajectories().where(_t.c.trajectory_id == parameter("id")))
_STARTED = (
    "readiness",
    "excluded_reason",
    "step_count",
    "prompt_tokens",
    "response_tokens",
    "status",
    "declared",
    "created_at",
)
_CREATE = sql(
    insert(_t).values({name: parameter(name) for name in ("pk", "trajectory_id", *CREATION_COLUMNS, *_STARTED)})
)
_DECLARE = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values({"declared": 1, **{name: parameter(name) for name in (*CREATION_COLUMNS, "excluded_reason")}})
)
_COMPLETE = sql(
    update(_t).where(_t.c.pk == parameter("row")).values(status=parameter("ended_as"), completed_at=parameter("at"))
)


def create(txn: Transaction, trajectory_id: str, new: NewTrajectory) -> Trajectory:
    """Create, declare what a step implied, or check that the same is there."""
    row = txn.one(FIND, {"id": trajectory_id})
    if row is None:
        row = imply(txn, trajectory_id, new, declared=True)
    elif row["declared"]:
        rules.check_same_creation(new, trajectory_from(row))
        if new.group_id is not None:
            groups.plan(txn, new.group_id, new)
    else:
        _declare(txn, row, new)
    return trajectory_from(find(txn, trajectory_id))


def imply(txn: Transaction, trajectory_id: str, new: NewTrajectory, declared: bool = False) -> Row:
    """Insert an open trajectory that is not there; returns its row.

    GoneError where it was deleted, ConflictError where its group was planned otherwise.
    """
    check_not_deleted(txn, "trajectory", trajectory_id, "trajectory_id")
    if new.user is not None:
        check_not_deleted(txn, "user", new.user, "user")
    late = new.group_id is not None and joined_group(txn, new.group_id, new).state == "closed"
    started = {
        "pk": txn.next_pk("trajectories"),
        "trajectory_id": trajectory_id,
        "declared": int(declared),
        "status": "open",
        "readiness": "excluded" if late else "open",
        "excluded_reason": LATE if late else None,
        "step_count": 0,
        "prompt_tokens": 0,
        "response_tokens": 0,
        "created_at": txn.now,
    }
    txn.execute(_CREATE, {**started, **creation_columns(new)})
    txn.count(TRAJECTORIES + "open")
    txn.count(READINESS + str(started["readiness"]))
    txn.count(CHANNEL_TRAJECTORIES + new.channel)
    add_event(txn, "trajectory.created", trajectory_id)
    row = find(txn, trajectory_id)
    groups.count(txn, None, groups.member_from(row))
    apply_awaited(txn, "trajectory", [trajectory_id])
    return find(txn, trajectory_id)


def imply_many(txn: Transaction, named: Iterable[tuple[str, NewTrajectory]]) -> dict[str, Row]:
    """The rows of open trajectories that are not there, inserted now; one of each id."""
    return {trajectory_id: imply(txn, trajectory_id, new) for trajectory_id, new in named}


def find(txn: Transaction, trajectory_id: str) -> Row:
    """The trajectory's row; NotFoundError where there is none."""
    row = txn.one(FIND, {"id": trajectory_id})
    if row is None:
        check_not_deleted(txn, "trajectory", trajectory_id, "trajectory_id")
        raise NotFoundError(f"no trajectory {trajectory_id!r}", path="trajectory_id")
    return row


def complete(txn: Transaction, trajectory_id: str, status: TerminalStatus, reward: float | None) -> Trajectory:
    """End a trajectory once, with its reward."""
    row = find(txn, trajectory_id)
    ends = rules.check_completion(trajectory_from(row), status)
    if ends:
        if row["group_id"] is not None and current_group(txn, row["group_id"]).state == "closed":
            exclude(txn, row, LATE)
        txn.execute(_COMPLETE, {"row": row["pk"], "ended_as": status, "at": txn.now})
        txn.count(TRAJECTORIES + "open", -1)
        txn.count(TRAJECTORIES + status)
        add_event(txn, "trajectory.completed", trajectory_id, data={"status": status})
    rewarded = False
    if reward is not None:
        signal = Reward(value=reward, trajectory_id=trajectory_id, source="complete")
        rules.check_reward(signal, "reward")
        rewarded = keep_reward(txn, "trajectory", trajectory_id, signal)
        if rewarded:
            apply_reward(txn, "trajectory", row, trajectory_id, signal)
    if ends or rewarded:
        # Once both are known, so that a group that closes now sees the reward.
        settle(txn, row, touched=rewarded)
    return trajectory_from(find(txn, trajectory_id))


def _declare(txn: Transaction, row: Row, new: NewTrajectory) -> None:
    """Give a trajectory that a step implied its settings, which may put it into a group, or another one."""
    if new.user is not None:
        check_not_deleted(txn, "user", new.user, "user")
    late = row["excluded_reason"]
    if new.group_id is not None:
        group = joined_group(txn, new.group_id, new)
        if new.group_id != row["group_id"]:
            late = LATE if group.state == "closed" else None
    elif row["group_id"] is not None:
        late = None
    txn.execute(_DECLARE, {"row": row["pk"], **creation_columns(new), "excluded_reason": late})
    if new.channel != row["channel"]:
        txn.count(CHANNEL_TRAJECTORIES + row["channel"], -1)
        txn.count(CHANNEL_TRAJECTORIES + new.channel)
    settle(txn, row, touched=True)
