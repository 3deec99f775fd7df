"""Checks of what rows say of each other: figures of trajectories and groups, leases and deliveries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, literal_column, or_, select

from agentworld.pool import schema
from agentworld.pool.keeping.records import Problem, Progress
from agentworld.pool.rules import DELETING
from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.rows import PROMPT_MESSAGES, RESPONSE_IDS
from agentworld.pool.sql.statements import Statement, parameter, sql

ROWS = 2_000  # trajectories that one look spans
_MAX = 100

_s, _t, _g = schema.steps, schema.trajectories, schema.groups
_d, _ba, _bu = schema.deliveries, schema.batches, schema.batch_units


def _sum(value: Any) -> ColumnElement[Any]:
    return func.coalesce(func.sum(value), 0)


_ANEW = "export the pool and import it into a new one, which counts anew"
_usable = and_(_s.c.excluded_reason.is_(None), _s.c.channel == _t.c.channel)


def _lacking(bit: int, condition: Any) -> ColumnElement[Any]:
    missing: ColumnElement[Any] = func.coalesce(func.max(case((and_(_usable, condition), 1), else_=0)), 0)
    return missing * literal_column(str(bit))


_lacks = (
    _lacking(1, _s.c.present.op("&")(RESPONSE_IDS) == 0)
    + _lacking(2, _s.c.logprobs.is_(None))
    + _lacking(4, or_(_s.c.present.op("&")(PROMPT_MESSAGES) == 0, _s.c.reply_node.is_(None)))
)
_FIGURES: dict[str, Any] = {
    "step_count": func.count(_s.c.pk),
    "prompt_tokens": _sum(_s.c.prompt_length),
    "response_tokens": _sum(_s.c.response_length),
    "usable_steps": _sum(case((and_(_s.c.pk.is_not(None), _usable), 1), else_=0)),
    "lacks": case((func.count(_s.c.pk) == 0, 0), else_=_lacks),
    "sampled_tokens": _sum(case((_usable, _s.c.sampled), else_=0)),
    "last_step": func.coalesce(func.max(case((_s.c.excluded_reason.is_(None), _s.c.pk))), 0),
}
_kept = {name: func.coalesce(_t.c[name], 0) for name in _FIGURES}
_TRAJECTORIES = sql(
    select(
        _t.c.trajectory_id,
        *(column.label(f"kept_{name}") for name, column in _kept.items()),
        *(column.label(f"real_{name}") for name, column in _FIGURES.items()),
        func.coalesce(func.count(_s.c.step_index.distinct()), 0).label("indexes"),
        func.coalesce(func.max(_s.c.step_index) + 1, 0).label("top_index"),
    )
    .outerjoin_from(_t, _s, _s.c.trajectory == _t.c.pk)
    .where(_t.c.pk > parameter("above"), _t.c.pk <= parameter("upto"), _t.c.excluded_reason.is_distinct_from(DELETING))
    .group_by(_t.c.pk)
)
_LAST_TRAJECTORY = sql(select(func.coalesce(func.max(_t.c.pk), 0)))
_own = _g.alias("own")
# One row a rollout: attempts with one index are one, a trajectory without an index is one of its own.
_rollouts = (
    select(_t.c.group_id, func.max(case((_t.c.status.in_(["finished", "truncated"]), 1), else_=0)).label("succeeded"))
    .add_columns(func.max(case((_t.c.status == "open", 1), else_=0)).label("runs"))
    .where(
        _t.c.group_id.in_(select(_own.c.group_id).where(_own.c.pk > parameter("above"), _own.c.pk <= parameter("upto")))
    )
    .group_by(_t.c.group_id, _t.c.rollout_index, case((_t.c.rollout_index.is_(None), _t.c.pk), else_=0))
    .subquery()
)
_ended = (
    select(_rollouts.c.group_id, func.count().label("number"))
    .where(or_(_rollouts.c.succeeded == 1, _rollouts.c.runs == 0))
    .group_by(_rollouts.c.group_id)
    .subquery()
)
_served = func.count(case((_t.c.readiness.in_(["complete", "ready"]), 1)))
_GROUPS = sql(
    select(
        _g.c.group_id,
        _g.c.members,
        _g.c.served,
        _g.c.ended,
        _g.c.size,
        func.count(_t.c.pk).label("real_members"),
        _served.label("real_served"),
        func.coalesce(func.max(_ended.c.number), 0).label("real_ended"),
    )
    .outerjoin_from(_g, _t, _t.c.group_id == _g.c.group_id)
    .outerjoin(_ended, _ended.c.group_id == _g.c.group_id)
    .where(_g.c.pk > parameter("above"), _g.c.pk <= parameter("upto"))
    .group_by(_g.c.pk)
)
_LAST_GROUP = sql(select(func.coalesce(func.max(_g.c.pk), 0)))
_GROUPLESS = sql(
    select(_t.c.trajectory_id, _t.c.group_id)
    .outerjoin_from(_t, _g, _g.c.group_id == _t.c.group_id)
    .where(_t.c.group_id.is_not(None), _g.c.pk.is_(None))
    .limit(parameter("limit"))
)
_HELD_BY_NOBODY = sql(
    select(_d.c.consumer, _d.c.unit, _d.c.key)
    .outerjoin_from(
        _d,
        _ba,
        and_(
            _ba.c.pk == _d.c.batch,
            _ba.c.state == "leased",
            _ba.c.consumer == _d.c.consumer,
            _ba.c.unit == _d.c.unit,
            _ba.c.channel == _d.c.channel,
        ),
    )
    .outerjoin(_bu, and_(_bu.c.batch == _ba.c.pk, _bu.c.key == _d.c.key))
    .where(_d.c.state == "leased", _bu.c.batch.is_(None))
    .limit(parameter("limit"))
)
_HELD_WITHOUT_DELIVERY = sql(
    select(_ba.c.batch_id, _bu.c.key)
    .join_from(_ba, _bu, _bu.c.batch == _ba.c.pk)
    .outerjoin(
        _d,
        and_(
            _d.c.consumer == _ba.c.consumer,
            _d.c.unit == _ba.c.unit,
            _d.c.channel == _ba.c.channel,
            _d.c.key == _bu.c.key,
            _d.c.state == "leased",
            _d.c.batch == _ba.c.pk,
        ),
    )
    .where(_ba.c.state == "leased", _d.c.key.is_(None))
    .limit(parameter("limit"))
)


def state_problems(database: Database, progress: Progress) -> Iterator[Problem]:
    """Figures that disagree with the rows that they sum up, and leases that disagree with deliveries."""
    yield from _trajectories(database, progress)
    yield from _groups(database)
    yield from _leases(database)


def _trajectories(database: Database, progress: Progress) -> Iterator[Problem]:
    with database.reading() as reader:
        last = reader.execute(_LAST_TRAJECTORY)[0][0]
    for above in range(0, last, ROWS):
        with database.reading() as reader:
            rows = reader.execute(_TRAJECTORIES, {"above": above, "upto": above + ROWS})
        for row in rows:
            for name in _FIGURES:
                if row[f"kept_{name}"] != row[f"real_{name}"]:
                    message = f"{name} is {row[f'kept_{name}']}, its steps give {int(row[f'real_{name}'])}"
                    hint = "What is served by it can be wrong, the steps are whole: " + _ANEW
                    yield Problem("count", "trajectories", row["trajectory_id"], message, hint)
            if not row["indexes"] == row["top_index"] == row["real_step_count"]:
                message = f"{row['real_step_count']} steps have {row['indexes']} indexes up to {row['top_index'] - 1}"
                hint = "A step is missing or is there twice: compare with what the gateway logged"
                yield Problem("sequence", "trajectories", row["trajectory_id"], message, hint)
        progress("trajectories", min(above + ROWS, last), last)


def _groups(database: Database) -> Iterator[Problem]:
    hint = "A batch of it can come too early or too late: " + _ANEW
    with database.reading() as reader:
        last = reader.execute(_LAST_GROUP)[0][0]
    for above in range(0, last, ROWS):
        with database.reading() as reader:
            rows = reader.execute(_GROUPS, {"above": above, "upto": above + ROWS})
        for row in rows:
            for name in ("members", "ended", "served"):
                # Of a group that waits for so many, those that were deleted count as ended too.
                has_gone = name == "ended" and row["size"] is not None and row["real_ended"] < row["ended"]
                if row[name] != row[f"real_{name}"] and not has_gone:
                    message = f"{name} is {row[name]}, its trajectories give {row[f'real_{name}']}"
                    yield Problem("count", "groups", row["group_id"], message, hint)
    for row in _rows(database, _GROUPLESS):
        message = f"it names the group {row['group_id']}, which is not there"
        yield Problem("reference", "trajectories", row["trajectory_id"], message, hint)


def _leases(database: Database) -> Iterator[Problem]:
    hint = "Call resume for its consumer with the batches of its checkpoint"
    for row in _rows(database, _HELD_BY_NOBODY):
        message = f"the {row['unit']} is leased to {row['consumer']}, but no batch that is out holds it"
        yield Problem("reference", "deliveries", row["key"], message, hint)
    for row in _rows(database, _HELD_WITHOUT_DELIVERY):
        message = f"the batch is out with {row['key']}, which is not leased by it"
        yield Problem("reference", "batches", row["batch_id"], message, hint)


def _rows(database: Database, statement: Statement) -> list[Any]:
    with database.reading() as reader:
        return list(reader.execute(statement, {"limit": _MAX}))
