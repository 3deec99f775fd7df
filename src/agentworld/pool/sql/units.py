"""Which units a consumer may lease, and what a leased unit holds.

Token training refuses steps without ids: a unit any of whose steps lacks what is required is not available. Steps that
are excluded, or of another channel, are no part of a unit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, exists, func, select, true

from agentworld.pool import rules, schema
from agentworld.pool.intake import INCLUDABLE
from agentworld.pool.lease_rules import wanted_readiness
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.reads import SCAN_ROWS, bounded_search, read_steps
from agentworld.pool.sql.rows import (
    PROMPT_MESSAGES,
    RESPONSE_IDS,
    select_steps,
    select_trajectories,
    trajectory_from,
)
from agentworld.pool.sql.statements import Statement, compiled, integers, json_list, parameter, sql, texts
from agentworld.pool.sql.where import NOW, condition
from agentworld.query import parse
from agentworld.records import BatchItem, BatchSpec, BatchTrajectory, Order, Readiness, Trajectory, Unit

_s, _t, _d = schema.steps, schema.trajectories, schema.deliveries


class AvailableUnit(NamedTuple):
    """A unit's key and the rows that it consists of: one step, or its trajectories."""

    key: str
    rows: list[int]


def available_units(
    connection: Reader,
    spec: BatchSpec,
    needs: tuple[str, ...],
    consumer: str,
    now: float,
) -> list[AvailableUnit]:
    """Up to the number that the (resolved) spec asks for, in its order; `now` is what `where` means by it."""
    unit: Unit = spec.unit or "step"
    statement = _units_sql(unit, spec.order, spec.where, needs, wanted_readiness(spec))
    limit = SCAN_ROWS if spec.order == "random" else spec.count
    bound = {
        "for_consumer": consumer,
        "in_channel": spec.channel,
        "rollouts": spec.rollouts or 1,
        "limit": limit,
        NOW: now,
    }
    with bounded_search(connection, spec.where):
        found = connection.execute(statement, bound)
    pairs = {row["key"]: row["pk"] for row in found}
    keys = rules.unit_order(spec, list(pairs.items()))[: spec.count] if spec.order == "random" else list(pairs)
    if unit != "group":
        return [AvailableUnit(key, [pairs[key]]) for key in keys]
    statement = _members_sql(spec.where, needs, wanted_readiness(spec))
    members: dict[str, list[int]] = {key: [] for key in keys}
    bound = {"in_channel": spec.channel, "keys": json_list(keys), NOW: now}
    with bounded_search(connection, spec.where):
        for row in connection.execute(statement, bound):
            members[row["group_id"]].append(row["pk"])
    return [AvailableUnit(key, rows) for key, rows in members.items()]


def read_items(
    connection: Reader, spec: BatchSpec, units: Sequence[AvailableUnit], counts: Sequence[int]
) -> list[BatchItem]:
    """The units with their trajectories and steps, tokens, messages and log-probabilities included."""
    rows = json_list([row for unit in units for row in unit.rows])
    by_step = spec.unit == "step"
    text = _STEPS if by_step else _STEPS_OF
    found = connection.execute(text, {"rows": rows, "in_channel": spec.channel})
    steps: dict[int, list[Any]] = {}
    for row, step in zip(found, read_steps(connection, found, INCLUDABLE), strict=True):
        steps.setdefault(row["pk"] if by_step else row["trajectory"], []).append(step)
    trajectories: dict[int, Trajectory] = {}
    owners = {row["pk"] if by_step else row["trajectory"]: row["trajectory"] for row in found}
    wanted = json_list(sorted(set(owners.values())))
    for row in connection.execute(_TRAJECTORIES, {"rows": wanted}):
        trajectories[row["pk"]] = trajectory_from(row)
    return [
        BatchItem(
            key=unit.key,
            trajectories=[
                BatchTrajectory(trajectory=trajectories[owners[row]], steps=steps[row])
                for row in unit.rows
                if row in owners
            ],
            delivery_count=count,
        )
        for unit, count in zip(units, counts, strict=True)
    ]


_STEPS = sql(select_steps().where(_s.c.pk.in_(integers("rows"))).order_by(_s.c.pk))
_STEPS_OF = sql(
    select_steps()
    .where(
        _s.c.trajectory.in_(integers("rows")), _s.c.excluded_reason.is_(None), _s.c.channel == parameter("in_channel")
    )
    .order_by(_s.c.pk)
)
_TRAJECTORIES = sql(select_trajectories().where(_t.c.pk.in_(integers("rows"))))


def _usable() -> ColumnElement[bool]:
    return and_(_s.c.excluded_reason.is_(None), _s.c.channel == parameter("in_channel"))


def _has(needs: tuple[str, ...]) -> ColumnElement[bool]:
    conditions: dict[str, ColumnElement[bool]] = {
        "tokens": _s.c.present.op("&")(RESPONSE_IDS) != 0,
        "logprobs": _s.c.logprobs.is_not(None),
        "messages": and_(_s.c.present.op("&")(PROMPT_MESSAGES) != 0, _s.c.reply_node.is_not(None)),
        "reward": true(),  # A matter of the trajectory's readiness.
    }
    return and_(*(conditions[name] for name in needs))


def _fit_trajectories(
    columns: Sequence[ColumnElement[Any]],
    first: ColumnElement[bool],
    where: str | None,
    needs: tuple[str, ...],
    wanted: tuple[Readiness, ...],
) -> Select[Any]:
    # SQLite tests the conditions in this order: `first` spares the subqueries of what was delivered long ago.
    of_trajectory = and_(_s.c.trajectory == _t.c.pk, _usable())
    statement = select(*columns).where(
        _t.c.readiness.in_(wanted),
        first,
        exists().where(of_trajectory),
        ~exists().where(of_trajectory, ~_has(needs)),
    )
    return statement if where is None else statement.where(condition(parse(where, "trajectories"), "trajectories"))


def _undelivered(unit: Unit, key: ColumnElement[Any]) -> ColumnElement[bool]:
    return ~exists().where(
        _d.c.consumer == parameter("for_consumer"), _d.c.unit == unit, _d.c.key == key, _d.c.state != "available"
    )


@functools.lru_cache(maxsize=128)
def _units_sql(
    unit: Unit, order: Order, where: str | None, needs: tuple[str, ...], wanted: tuple[Readiness, ...]
) -> Statement:
    """Selects key and pk of each available unit. Cached by the text of `where`, as in reads."""
    key: ColumnElement[Any]
    place: ColumnElement[Any]
    statement: Select[Any]
    if unit == "step":
        key, place = _s.c.step_id, _s.c.pk
        columns: list[ColumnElement[Any]] = [key.label("key"), place.label("pk")]
        statement = (
            select(*columns)
            .join_from(_s, _t, _s.c.trajectory == _t.c.pk)
            .where(_undelivered(unit, key), _usable(), _has(needs), _t.c.readiness.in_(wanted))
        )
        if where is not None:
            statement = statement.where(condition(parse(where, "steps"), "steps"))
    elif unit == "trajectory":
        key, place = _t.c.trajectory_id, _t.c.pk
        undelivered = _undelivered(unit, key)
        statement = _fit_trajectories([key.label("key"), place.label("pk")], undelivered, where, needs, wanted)
    else:
        key, place = _t.c.group_id, func.min(_t.c.pk)
        undelivered = _undelivered(unit, key)
        statement = _fit_trajectories([key.label("key"), place.label("pk")], undelivered, where, needs, wanted)
        statement = statement.where(key.is_not(None)).group_by(key).having(func.count() >= parameter("rollouts"))
    ordered = place.desc() if order == "freshest" else place.asc()
    return compiled(statement.order_by(ordered).limit(parameter("limit")))


@functools.lru_cache(maxsize=128)
def _members_sql(where: str | None, needs: tuple[str, ...], wanted: tuple[Readiness, ...]) -> Statement:
    """Selects the trajectories of chosen groups."""
    statement: Select[Any] = _fit_trajectories(
        [_t.c.group_id, _t.c.pk], _t.c.group_id.in_(texts("keys")), where, needs, wanted
    )
    return compiled(statement.order_by(_t.c.pk))
