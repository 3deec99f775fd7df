"""The rows of annotations, and the names that steps and trajectories carry of them."""

from __future__ import annotations

import msgspec
from sqlalchemy import delete, insert, or_, select, update

from agentworld.pool import schema
from agentworld.pool.annotation_arrays import unpack_values
from agentworld.pool.counters import ANNOTATIONS
from agentworld.pool.signal_rules import CheckedSignal
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import json_list, parameter, sql, texts
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Annotation

_a, _s, _t = schema.annotation_arrays, schema.steps, schema.trajectories
_KEY = ("target", "target_id", "name")
_KNOWN = sql(select(_a).where(*(_a.c[name] == parameter(name) for name in _KEY)))
_INSERT = sql(insert(_a).values({column.name: parameter(column.name) for column in _a.c}))
_REPLACE = sql(
    update(_a)
    .where(_a.c.pk == parameter("row"))
    .values({column.name: parameter(column.name) for column in _a.c if column.name not in _KEY})
)
_DELETE = sql(delete(_a).where(_a.c.pk == parameter("row")))
_ABOUT = [column for column in _a.c if column.name != "data"]
_OF_TARGET = sql(
    select(*_ABOUT).where(_a.c.target == parameter("kind"), _a.c.target_id == parameter("id")).order_by(_a.c.pk)
)
_NAMES = {
    "step": sql(update(_s).where(_s.c.pk == parameter("row")).values(annotations=parameter("all_names"))),
    "trajectory": sql(update(_t).where(_t.c.pk == parameter("row")).values(annotations=parameter("all_names"))),
}
_OF_STEPS = sql(
    select(_a).where(_a.c.target == "step", _a.c.target_id.in_(texts("ids"))).order_by(_a.c.target_id, _a.c.name)
)
_OF_STEPS_NAMED = sql(
    select(_a)
    .where(_a.c.target == "step", _a.c.target_id.in_(texts("ids")), _a.c.name.in_(texts("wanted")))
    .order_by(_a.c.target_id, _a.c.name)
)
_steps_of = (
    select(_s.c.step_id)
    .join_from(_s, _t, _s.c.trajectory == _t.c.pk)
    .where(_t.c.trajectory_id == parameter("trajectory_id"))
)
_of_trajectory = or_(
    (_a.c.target == "trajectory") & (_a.c.target_id == parameter("trajectory_id")),
    (_a.c.target == "step") & _a.c.target_id.in_(_steps_of),
)
_OF_TRAJECTORY = sql(select(_a).where(_of_trajectory).order_by(_a.c.target, _a.c.target_id, _a.c.name))
_OF_TRAJECTORY_NAMED = sql(
    select(_a).where(_of_trajectory, _a.c.name.in_(texts("wanted"))).order_by(_a.c.target, _a.c.target_id, _a.c.name)
)


def keep_annotation(txn: Transaction, signal: CheckedSignal) -> bool:
    """Store an array in place of the one of its name; False where the same was there."""
    sent, array = signal.record, signal.array
    assert isinstance(sent, Annotation)
    assert array is not None
    key = {"target": signal.target, "target_id": signal.target_id, "name": sent.name}
    said = {
        "source": sent.source,
        "dtype": array.dtype,
        "shape": msgspec.json.encode(array.shape).decode(),
        "data": array.data,
        "per_token": int(sent.per_token),
    }
    known = txn.one(_KNOWN, key)
    if known is not None and all(known[name] == value for name, value in said.items()):
        return False
    row = {
        **said,
        "pk": txn.next_pk("annotations"),
        "of_trajectory": sent.trajectory_id if signal.target == "step" else None,
        "created_at": sent.created_at or txn.now,
    }
    if known is None:
        txn.execute(_INSERT, {**row, **key})
        txn.count(ANNOTATIONS)
    else:
        txn.execute(_REPLACE, {"row": known["pk"], **row})
    return True


def apply_annotation(txn: Transaction, kind: str, row: Row, target_id: str, about: Annotation) -> None:
    """Put the name on its target, whose row this is, and tell of it."""
    names = sorted({*from_json(row["annotations"], []), about.name})
    txn.execute(_NAMES[kind], {"row": row["pk"], "all_names": json_or_none(names)})
    data = {"name": about.name, "source": about.source, "dtype": about.dtype, "shape": list(about.shape)}
    add_event(txn, "annotation.set", row["trajectory_id"], target_id if kind == "step" else None, data)


def annotations_of(txn: Transaction, kind: str, target_id: str) -> list[Row]:
    """The rows on one target without their data, in the order of their commits."""
    return txn.execute(_OF_TARGET, {"kind": kind, "id": target_id})


def drop_annotation(txn: Transaction, pk: int) -> None:
    """Take one row away."""
    txn.execute(_DELETE, {"row": pk})
    txn.count(ANNOTATIONS, -1)


def about_from(row: Row) -> Annotation:
    """A row as a record without its values."""
    on_step = row["target"] == "step"
    return Annotation(
        name=row["name"],
        values=None,
        trajectory_id=row["of_trajectory"] if on_step else row["target_id"],
        step_id=row["target_id"] if on_step else None,
        dtype=row["dtype"],
        shape=tuple(from_json(row["shape"], ())),
        per_token=bool(row["per_token"]),
        source=row["source"],
        created_at=row["created_at"],
    )


def annotation_from(row: Row) -> Annotation:
    """A row as a record with its array."""
    found = about_from(row)
    assert found.dtype is not None
    found.values = unpack_values(found.dtype, found.shape, bytes(row["data"]))
    return found


def read_annotations(
    reader: Reader, step_ids: list[str] | None, trajectory_id: str | None, names: list[str] | None
) -> list[Annotation]:
    """The annotations of steps, or of a trajectory and all of its steps; of some names, or of all."""
    bound: dict[str, object] = {} if names is None else {"wanted": json_list(names)}
    if step_ids is not None:
        bound["ids"] = json_list(step_ids)
        statement = _OF_STEPS if names is None else _OF_STEPS_NAMED
    else:
        bound["trajectory_id"] = trajectory_id
        statement = _OF_TRAJECTORY if names is None else _OF_TRAJECTORY_NAMED
    return [annotation_from(row) for row in reader.execute(statement, bound)]
