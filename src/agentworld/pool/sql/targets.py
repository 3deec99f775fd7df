"""The steps and trajectories that the signals of one operation are on.

They are read together, changed in memory, and written together, so that an operation takes as few statements as it can
while others wait for the pool's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Select, select, update

from agentworld.pool import rules, schema
from agentworld.pool.signal_rules import Target
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Feedback

_s, _t = schema.steps, schema.trajectories
_SIGNALS = ("rewards", "labels", "annotations")
_TABLES = {"step": _s, "trajectory": _t}


def _found(table: Any, target_id: Any, length: Any) -> Select[Any]:
    columns = [table.c.pk.label("pk"), target_id.label("id"), *(table.c[name].label(name) for name in _SIGNALS)]
    found = select(
        *columns,
        _t.c.pk.label("trajectory"),
        _t.c.trajectory_id.label("trajectory_id"),
        _t.c.channel.label("channel"),
        length,
    )
    if table is _s:
        found = found.join_from(_s, _t, _s.c.trajectory == _t.c.pk)
    return found.where(among_texts(target_id, "ids"))


_FIND = {
    "step": sql(_found(_s, _s.c.step_id, _s.c.response_length.label("length"))),
    "trajectory": sql(_found(_t, _t.c.trajectory_id, _t.c.step_count.label("length"))),
}
_WRITE = {
    kind: {
        "rewards": sql(
            update(table)
            .where(table.c.pk == parameter("row"))
            .values(rewards=parameter("said"), reward=parameter("primary_value"))
        ),
        **{
            name: sql(update(table).where(table.c.pk == parameter("row")).values({name: parameter("said")}))
            for name in ("labels", "annotations")
        },
    }
    for kind, table in _TABLES.items()
}


class Found:
    """One step or trajectory: its row, its trajectory's row, and what signals have set on it."""

    __slots__ = ("_row", "changed", "channel", "id", "kind", "length", "pk", "said", "trajectory", "trajectory_id")

    def __init__(self, kind: Target, row: Row) -> None:
        self.kind = kind
        self.id: str = row["id"]
        self.pk: int = row["pk"]
        self.trajectory: int = row["trajectory"]
        self.trajectory_id: str = row["trajectory_id"]
        self.channel: str = row["channel"]  # of its trajectory
        self.length: int | None = row["length"]  # of a step's reply, in tokens
        self._row = row
        self.said: dict[str, Any] = {}  # what has been read of its signals, by column
        self.changed: set[str] = set()

    @property
    def step_id(self) -> str | None:
        """Its id where it is a step."""
        return self.id if self.kind == "step" else None

    @property
    def rewards(self) -> dict[str, float]:
        """The effective rewards."""
        values: dict[str, float] = self._read("rewards", {})
        return values

    def set_reward(self, name: str, value: float) -> None:
        """Make a value the effective one of its name."""
        self.rewards[name] = value
        self.changed.add("rewards")

    def set_label(self, sent: Feedback) -> None:
        """Set the label that the feedback names, or take it away."""
        labels = self._read("labels", {})
        labels.pop(sent.name, None)
        if sent.value is not None:
            labels[sent.name] = sent.value
        self.changed.add("labels")

    def add_annotation(self, name: str) -> None:
        """Carry the name of an array."""
        names = self._read("annotations", [])
        if name not in names:
            names.append(name)
            names.sort()
            self.changed.add("annotations")

    def _read(self, column: str, empty: Any) -> Any:
        if column not in self.said:
            self.said[column] = from_json(self._row[column], empty)
        return self.said[column]


class Targets:
    """Those that are there, by kind and id."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._found: dict[tuple[Target, str], Found] = {}

    def load(self, kind: Target, ids: Iterable[str]) -> None:
        """Read those of these ids that are there."""
        named = list(dict.fromkeys(ids))
        if named:
            for row in self._txn.execute(_FIND[kind], {"ids": json_list(named)}):
                self._found[kind, row["id"]] = Found(kind, row)

    def get(self, kind: Target, target_id: str) -> Found | None:
        """One of them, or None where it is not there."""
        return self._found.get((kind, target_id))

    def write(self) -> None:
        """Write what has changed."""
        for kind, statements in _WRITE.items():
            for column, statement in statements.items():
                rows = []
                for found in self._found.values():
                    if found.kind != kind or column not in found.changed:
                        continue
                    said = found.said[column]
                    row = {"row": found.pk, "said": json_or_none(said)}
                    rows.append(row if column != "rewards" else {**row, "primary_value": said.get(rules.PRIMARY)})
                self._txn.many(statement, rows)
        for found in self._found.values():
            found.changed.clear()
