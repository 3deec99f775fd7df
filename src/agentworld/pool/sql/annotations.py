"""The rows of annotations, and the names that steps and trajectories carry of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import delete, insert, or_, select, update

from agentworld.pool import schema
from agentworld.pool.annotation_arrays import unpack_values
from agentworld.pool.counters import ANNOTATIONS
from agentworld.pool.signal_rules import CheckedSignal
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.events import Events
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.statements import json_list, parameter, sql, texts
from agentworld.pool.sql.targets import Found
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Annotation

_KEY = ("target", "target_id", "name")
_SAID = ("source", "dtype", "shape", "per_token")
_a, _s, _t = schema.annotation_arrays, schema.steps, schema.trajectories
_INSERT = sql(insert(_a).values({column.name: parameter(column.name) for column in _a.c}))
_REPLACE = sql(
    update(_a)
    .where(_a.c.pk == parameter("row"))
    .values({column.name: parameter(column.name) for column in _a.c if column.name not in _KEY})
)
_DELETE = sql(delete(_a).where(_a.c.pk == parameter("row")))
_ABOUT = [column for column in _a.c if column.name != "data"]
_OF_TARGETS = sql(
    select(*_ABOUT).where(_a.c.target == parameter("kind"), among_texts(_a.c.target_id, "ids")).order_by(_a.c.pk)
)
_DATA = sql(select(_a.c.pk, _a.c.data).where(among_integers(_a.c.pk, "rows")))
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


class AnnotationRows:
    """Arrays that one operation stores: what is there is read by `load`, what is new is written by `write`.

    Arrays are read only where what is said of them is the same, to see whether they are.
    """

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._there: dict[tuple[str, str, str], int] = {}
        self._known: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._rows: dict[tuple[str, str, str], dict[str, Any]] = {}

    def load(self, signals: Sequence[CheckedSignal]) -> None:
        """Read what is stored under the keys of these annotations; needed before `keep`."""
        said: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        for signal in signals:
            said.setdefault(_key(signal), []).append(_said(signal))
        alike: dict[int, tuple[str, str, str]] = {}
        for kind in ("step", "trajectory"):
            ids = list(dict.fromkeys(key[1] for key in said if key[0] == kind))
            for row in annotations_of(self._txn, kind, ids) if ids else ():
                key = (kind, row["target_id"], row["name"])
                if key in said:
                    self._there[key] = row["pk"]
                    self._known[key] = {name: row[name] for name in _SAID}
                    if any(all(row[name] == sent[name] for name in _SAID) for sent in said[key]):
                        alike[row["pk"]] = key
        if alike:
            for row in self._txn.execute(_DATA, {"rows": json_list(list(alike))}):
                self._known[alike[row["pk"]]]["data"] = bytes(row["data"])

    def keep(self, signal: CheckedSignal) -> bool:
        """Store an array in place of the one of its name; False where the same was there."""
        sent, key, said = signal.record, _key(signal), _said(signal)
        if self._known.get(key) == said:
            return False
        self._known[key] = said
        self._rows[key] = {
            **said,
            "pk": self._txn.next_pk("annotations"),
            "of_trajectory": sent.trajectory_id if signal.target == "step" else None,
            "created_at": sent.created_at or self._txn.now,
        }
        return True

    def write(self) -> None:
        """Write what was kept."""
        new, changed = [], []
        for key, row in self._rows.items():
            if (pk := self._there.get(key)) is not None:
                changed.append({"row": pk, **row})
            else:
                new.append({**row, **dict(zip(_KEY, key, strict=True))})
        self._txn.many(_INSERT, new)
        self._txn.many(_REPLACE, changed)
        self._txn.count(ANNOTATIONS, len(new))
        self._rows = {}


def apply_annotation(events: Events, target: Found, about: Annotation) -> None:
    """Put the name on its target, and tell of it."""
    target.add_annotation(about.name)
    data = {"name": about.name, "source": about.source, "dtype": about.dtype, "shape": list(about.shape)}
    events.add("annotation.set", target.trajectory_id, target.step_id, data, channel=target.channel)


def annotations_of(txn: Transaction, kind: str, ids: list[str]) -> list[Row]:
    """The rows on these targets without their data, in the order of their commits."""
    return txn.execute(_OF_TARGETS, {"kind": kind, "ids": json_list(ids)})


def drop_annotations(txn: Transaction, pks: list[int]) -> None:
    """Take rows away."""
    txn.many(_DELETE, [{"row": pk} for pk in pks])
    txn.count(ANNOTATIONS, -len(pks))


def _key(signal: CheckedSignal) -> tuple[str, str, str]:
    assert isinstance(signal.record, Annotation)
    return signal.target, signal.target_id, signal.record.name


def _said(signal: CheckedSignal) -> dict[str, Any]:
    sent, array = signal.record, signal.array
    assert isinstance(sent, Annotation)
    assert array is not None
    return {
        "source": sent.source,
        "dtype": array.dtype,
        "shape": msgspec.json.encode(array.shape).decode(),
        "data": array.data,
        "per_token": int(sent.per_token),
    }


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
