"""The rows of dataset versions as what they are to retention: pins of trajectories that are there."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select

from agentworld.pool import schema
from agentworld.pool.dataset_rules import OWNER_KIND, building_owner
from agentworld.pool.keeping.records import Pin
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.statements import parameter, sql

_d, _r, _t = schema.datasets, schema.dataset_rows, schema.trajectories
_owner_columns = (_d.c.pk, _d.c.name, _d.c.digest)
_VERSIONS = sql(select(*_owner_columns))
_VERSIONS_OF = sql(
    select(*_owner_columns).join_from(_r, _d, _d.c.pk == _r.c.dataset).where(_r.c.trajectory_id == parameter("id"))
)
_rows: Select[Any] = (
    select(_r.c.trajectory_id, _r.c.put_at)
    .where(
        _r.c.dataset == parameter("version"), select(_t.c.pk).where(_t.c.trajectory_id == _r.c.trajectory_id).exists()
    )
    .order_by(_r.c.position)
    .limit(parameter("limit"))
)
_ROWS = sql(_rows)
_ROWS_OF = sql(_rows.where(_r.c.trajectory_id == parameter("id")))


def dataset_pins(reader: Reader, owner: str | None, trajectory_id: str | None, limit: int) -> list[Pin]:
    """The first of them by owner and trajectory, of one owner or of one trajectory or of all."""
    if trajectory_id is None:
        versions = reader.execute(_VERSIONS)
    else:
        versions = reader.execute(_VERSIONS_OF, {"id": trajectory_id})
    owners = sorted((_owner(row), row["pk"]) for row in versions)
    pins: list[Pin] = []
    for of, number in owners:
        if owner not in (None, of):
            continue
        bound: dict[str, Any] = {"version": number, "limit": limit - len(pins)}
        if trajectory_id is None:
            found = reader.execute(_ROWS, bound)
        else:
            found = reader.execute(_ROWS_OF, {**bound, "id": trajectory_id})
        pins += [Pin(OWNER_KIND, of, row["trajectory_id"], row["put_at"]) for row in found]
        if len(pins) >= limit:
            break
    return pins


def _owner(row: Row) -> str:
    return building_owner(row["name"], row["pk"]) if row["digest"] is None else f"{row['name']}@{row['digest']}"
