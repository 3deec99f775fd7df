"""What leased units hold: trajectories and steps with everything, the arrays that the spec requires, the rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import and_, select

from agentworld.pool import schema
from agentworld.pool.annotation_arrays import plain_values, unpack_values
from agentworld.pool.batch_items import batch_trajectory
from agentworld.pool.intake import INCLUDABLE
from agentworld.pool.lease_rules import required_annotations
from agentworld.pool.sql.connections import Asked, Reader, Row
from agentworld.pool.sql.lookups import among_integers, among_texts, unindexed
from agentworld.pool.sql.reads import read_steps
from agentworld.pool.sql.rows import from_json, select_steps, select_trajectories, trajectory_from
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.units import Plan
from agentworld.pool.unit_rules import Member
from agentworld.records import BatchItem, Step, Trajectory

_s, _t, _a = schema.steps, schema.trajectories, schema.annotation_arrays
Rewards = dict[str, dict[str, float]]
# What a member's steps come from, with its row: pairs may compare steps and trajectories in one batch.
Source = tuple[Literal["step", "trajectory"], int]

_STEPS = sql(select_steps().where(among_integers(_s.c.pk, "rows")).order_by(_s.c.pk))
_of_trajectories = (
    among_integers(_s.c.trajectory, "rows"),
    unindexed(and_(_s.c.excluded_reason.is_(None), _s.c.channel == parameter("in_channel"))),
)
_STEPS_OF = sql(select_steps().where(*_of_trajectories))
_TRAJECTORIES = sql(select_trajectories().where(among_integers(_t.c.pk, "rows")))
_STEP_REWARDS = sql(
    select(_s.c.trajectory, _s.c.step_id, _s.c.rewards).where(*_of_trajectories, _s.c.rewards.is_not(None))
)
_OWN_REWARDS = sql(
    select(_s.c.pk, _s.c.step_id, _s.c.rewards).where(among_integers(_s.c.pk, "rows"), _s.c.rewards.is_not(None))
)
_ARRAYS = sql(
    select(_a.c.target_id, _a.c.name, _a.c.dtype, _a.c.shape, _a.c.data).where(
        _a.c.target == parameter("target"), among_texts(_a.c.target_id, "ids"), among_texts(_a.c.name, "names")
    )
)


class TakenUnit(NamedTuple):
    """A leased unit: its key, what goes with it, how often it was handed out now, and its rewards at the lease."""

    key: str
    members: tuple[Member, ...]
    deliveries: int
    rewards: Rewards


def statements(plan: Plan) -> list[Statement]:
    """Those that `rewards_of` and `read_items` ask of every unit."""
    steps = [_OWN_REWARDS, _STEPS] if plan.scope.unit == "step" else [_STEP_REWARDS, _STEPS_OF]
    return [*steps, _TRAJECTORIES]


def rewards_of(txn: Transaction, plan: Plan, members: Sequence[tuple[Member, ...]]) -> list[Rewards]:
    """Every reward of each unit's trajectories and steps as it is now, by id."""
    everyone = [member for unit in members for member in unit]
    of_steps: dict[Source, Rewards] = {}
    singles = [member.step for member in everyone if member.step is not None]
    if singles:
        for row in txn.execute(_OWN_REWARDS, {"rows": json_list(singles)}):
            of_steps.setdefault(("step", row["pk"]), {})[row["step_id"]] = from_json(row["rewards"], {})
    whole = [member.row for member in everyone if member.step is None]
    if whole:
        bound = {"rows": json_list(whole), "in_channel": plan.scope.channel}
        for row in txn.execute(_STEP_REWARDS, bound):
            of_steps.setdefault(("trajectory", row["trajectory"]), {})[row["step_id"]] = from_json(row["rewards"], {})
    found: list[Rewards] = []
    for unit in members:
        rewards: Rewards = {}
        for member in unit:
            if member.rewards:
                rewards[member.trajectory_id] = dict(member.rewards)
            rewards.update(of_steps.get(_source(member), {}))
        found.append(rewards)
    return found


def read_items(connection: Reader, plan: Plan, units: Sequence[TakenUnit]) -> list[BatchItem]:
    """The units with their trajectories and steps: tokens, messages, log-probabilities, required annotations."""
    everyone = [member for unit in units for member in unit.members]
    of_singles, of_whole, of_trajectories = _asks(plan, everyone)
    steps: dict[Source, list[Step]] = {}
    if of_singles is not None:
        found = connection.execute(*of_singles)
        for row, step in zip(found, read_steps(connection, found, INCLUDABLE), strict=True):
            steps.setdefault(("step", row["pk"]), []).append(step)
    if of_whole is not None:
        found = connection.execute(*of_whole)
        found.sort(key=lambda row: int(row["pk"]))  # The engine would sort whole rows.
        for row, step in zip(found, read_steps(connection, found, INCLUDABLE), strict=True):
            steps.setdefault(("trajectory", row["trajectory"]), []).append(step)
    trajectories: dict[int, Trajectory] = {}
    for row in connection.execute(*of_trajectories):
        trajectories[row["pk"]] = trajectory_from(row)
    arrays = _arrays(connection, plan, everyone, steps)
    items = []
    for unit in units:
        entries = []
        for member in unit.members:
            if member.row not in trajectories:
                continue  # Deleted on request since the lease.
            own = steps.get(_source(member), [])
            entries.append(
                batch_trajectory(
                    trajectories[member.row], own, member, unit.rewards.get(member.trajectory_id, {}), arrays
                )
            )
        items.append(
            BatchItem(key=unit.key, trajectories=entries, delivery_count=unit.deliveries, rewards=unit.rewards)
        )
    return items


def ask_items(plan: Plan, units: Sequence[TakenUnit]) -> list[Asked]:
    """What `read_items` asks first."""
    asked = _asks(plan, [member for unit in units for member in unit.members])
    return [one for one in asked if one is not None]


def _source(member: Member) -> Source:
    return ("trajectory", member.row) if member.step is None else ("step", member.step)


def _asks(plan: Plan, everyone: Sequence[Member]) -> tuple[Asked | None, Asked | None, Asked]:
    """For the steps of units that are steps, those of whole trajectories, and the trajectories."""
    singles = [member.step for member in everyone if member.step is not None]
    whole = [member.row for member in everyone if member.step is None]
    return (
        (_STEPS, {"rows": json_list(singles)}) if singles else None,
        (_STEPS_OF, {"rows": json_list(whole), "in_channel": plan.scope.channel}) if whole else None,
        (_TRAJECTORIES, {"rows": json_list(sorted({member.row for member in everyone}))}),
    )


def _arrays(
    connection: Reader, plan: Plan, members: Sequence[Member], steps: dict[Source, list[Step]]
) -> dict[str, dict[str, Any]]:
    """The required annotations by the id of what they are on, then by name."""
    names = required_annotations(plan.wish.needs)
    if not names:
        return {}
    targets = {
        "step": [step.step_id for own in steps.values() for step in own],
        "trajectory": [member.trajectory_id for member in members],
    }
    arrays: dict[str, dict[str, Any]] = {}
    for target, ids in targets.items():
        bound = {"target": target, "ids": json_list(ids), "names": json_list(names)}
        for row in connection.execute(_ARRAYS, bound):
            arrays.setdefault(row["target_id"], {})[row["name"]] = _values(row)
    return arrays


def _values(row: Row) -> Any:
    return plain_values(unpack_values(row["dtype"], tuple(from_json(row["shape"], [])), row["data"]))
