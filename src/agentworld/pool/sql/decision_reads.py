"""Decisions as records."""

from __future__ import annotations

from sqlalchemy import and_, literal, select

from agentworld.pool import schema
from agentworld.pool.decision_rules import Target, tags_of
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.statements import parameter, sql
from agentworld.query.rules import WEIGHT
from agentworld.records import Decision

_s, _t, _d = schema.steps, schema.trajectories, schema.decisions
_LISTED = (
    select(_d, _t.c.trajectory_id.label("trajectory_id"), _s.c.step_id.label("step_id"))
    .select_from(
        _d.join(_t, _t.c.pk == _d.c.trajectory).outerjoin(
            _s, and_(_s.c.pk == _d.c.row_pk, _d.c.subject == literal("step"))
        )
    )
    .order_by(_d.c.pk)
)
_OF_TRAJECTORY = sql(_LISTED.where(_t.c.trajectory_id == parameter("id")))
_OF_STEP = sql(_LISTED.where(_s.c.step_id == parameter("id"), _d.c.subject == "step"))


def read_decisions(reader: Reader, target: Target, target_id: str) -> list[Decision]:
    """Those on a step, or on a trajectory and its steps."""
    rows = reader.execute(_OF_STEP if target == "step" else _OF_TRAJECTORY, {"id": target_id})
    return [_decision_from(row) for row in rows]


def _decision_from(row: Row) -> Decision:
    labels = from_json(row["labels"], {})
    return Decision(
        verdict=row["verdict"],
        trajectory_id=row["trajectory_id"],
        step_id=row["step_id"],
        reason=row["reason"],
        by=row["by"],
        rule=row["rule"],
        policy=row["policy"],
        tags=tags_of(labels),
        weight=labels.get(WEIGHT),
        source=row["source"],
        at=row["at"],
    )
