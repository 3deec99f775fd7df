"""What each counter must be, counted from the rows: for checks and tests, as it looks at every row."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, case, func, literal_column, select

from agentworld.forest import BLOCK_SIZE
from agentworld.pool import counters, schema
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.statements import Statement, sql

_s, _t, _x = schema.steps.c, schema.trajectories.c, schema.exchanges.c


def _sum(value: Any) -> ColumnElement[Any]:
    return func.coalesce(func.sum(value), 0)


def _grouped(column: Any) -> Statement:
    return sql(select(column, func.count()).group_by(column))


_ROWS = {
    counters.BLOCKS: schema.token_blocks,
    counters.MESSAGE_NODES: schema.message_nodes,
    counters.TOOL_SETS: schema.tool_sets,
    counters.REWARDS: schema.rewards,
    counters.ANNOTATIONS: schema.annotation_arrays,
    counters.AWAITED: schema.awaited,
    counters.DEAD_LETTERS: schema.dead_letters,
    counters.TOMBSTONES: schema.tombstones,
}
_COUNTS = {name: sql(select(func.count()).select_from(table)) for name, table in _ROWS.items()}
_GROUPED = {
    counters.TRAJECTORIES: _grouped(_t.status),
    counters.READINESS: _grouped(_t.readiness),
    counters.CHANNEL_TRAJECTORIES: _grouped(_t.channel),
    counters.CHANNEL_STEPS: _grouped(_s.channel),
    counters.FEEDBACK: _grouped(schema.feedback.c.kind),
    counters.GROUPS: _grouped(schema.groups.c.state),
    counters.BATCHES: _grouped(schema.batches.c.state),
    counters.BACKLOG: _grouped(schema.backlog.c.consumer),
}
_STEPS = sql(
    select(
        func.count().label(counters.STEPS),
        _sum(case((_s.excluded_reason.is_not(None), 1), else_=0)).label("excluded"),
        _sum(_s.id_count).label(counters.TOKENS_FLAT),
        _sum(_s.id_count % literal_column(str(BLOCK_SIZE))).label(counters.TOKENS_IN_TAILS),
        _sum(_s.sampled).label(counters.TOKENS_SAMPLED),
    )
)
_EXCHANGES = sql(select(func.count().label("calls"), _sum(case((_x.status == "error", 1), else_=0)).label("failed")))
_MEDIA = sql(select(func.count().label("blobs"), _sum(schema.media.c.size).label("bytes")))
_d = schema.deliveries.c
_DELIVERIES = sql(select(_d.state, _d.consumer, func.count()).group_by(_d.state, _d.consumer))
_COUNTERS = sql(select(schema.counters.c.name, schema.counters.c.value))


def recount(reader: Reader) -> dict[str, int]:
    """Counters by name as the rows say; those that are 0 are left out."""
    found: dict[str, int] = {name: reader.execute(statement)[0][0] for name, statement in _COUNTS.items()}
    for prefix, statement in _GROUPED.items():
        found.update({prefix + row[0]: row[1] for row in reader.execute(statement)})
    steps = reader.execute(_STEPS)[0]
    for name in (counters.STEPS, counters.TOKENS_FLAT, counters.TOKENS_IN_TAILS, counters.TOKENS_SAMPLED):
        found[name] = int(steps[name])
    found[counters.STEPS_EXCLUDED] = int(steps["excluded"])
    calls = reader.execute(_EXCHANGES)[0]
    found[counters.EXCHANGES], found[counters.EXCHANGES_FAILED] = calls["calls"], int(calls["failed"])
    media = reader.execute(_MEDIA)[0]
    found[counters.MEDIA], found[counters.MEDIA_BYTES] = media["blobs"], int(media["bytes"])
    for row in reader.execute(_DELIVERIES):
        if row[0] in counters.DELIVERY_STATES:
            found[counters.delivery(row[0], row[1])] = row[2]
    return {name: int(number) for name, number in found.items() if number}


def stored_counters(reader: Reader) -> dict[str, int]:
    """Counters by name as they are kept, but those that count no rows; those that are 0 are left out."""
    return {
        row["name"]: row["value"]
        for row in reader.execute(_COUNTERS)
        if row["value"] and not row["name"].startswith(counters.UNCOUNTED)
    }
