"""Checks of rows and of what they say of each other: sequences, words, JSON, arrays, targets, effective values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import numpy as np
from sqlalchemy import Table, and_, func, or_, select

from agentworld.pool import schema
from agentworld.pool.exact_text import original, read_json
from agentworld.pool.keeping.records import Problem, Progress
from agentworld.pool.lease_rules import LeaseState, UnitState
from agentworld.pool.rules import IMPORTING
from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.statements import Statement, parameter, sql
from agentworld.records import FeedbackKind, Readiness, TrajectoryStatus, Unit

ROWS = 2_000  # that one look reads
MAX = 100  # problems of a kind that one look names

_RESTORE = "Restore the pool from a backup, or export what is sound and import it into a new pool"
_s, _t, _g = schema.steps, schema.trajectories, schema.groups
_r, _f, _a, _aw = schema.rewards, schema.feedback, schema.annotation_arrays, schema.awaited

# --- sequences ----------------------------------------------------------------------------------------------------
_SEQUENCES: dict[str, tuple[Any, ...]] = {
    "ready_seq": (_t.c.ready_seq, _g.c.ready_seq, schema.positions.c.ready_seq),
    "backlog": (schema.backlog.c.mark,),
}
# Positions among comparisons count feedback.
_TOPS = {
    name: [
        (
            column.table.name,
            sql(
                select(func.coalesce(func.max(column), 0)).where(
                    schema.positions.c.unit != "comparison" if column.table is schema.positions else column.is_not(None)
                )
            ),
        )
        for column in columns
    ]
    for name, columns in _SEQUENCES.items()
}
_ALLOTTED = sql(select(schema.counters.c.value).where(schema.counters.c.name == parameter("name")))
_LAST_EVENT = sql(select(func.coalesce(func.max(schema.events.c.pk), 0)))
_UNNUMBERED = sql(
    select(_t.c.trajectory_id)
    .where(_t.c.readiness.in_(["complete", "ready"]), _t.c.ready_seq.is_(None))
    .limit(parameter("limit"))
)
_GROUPS_UNNUMBERED = sql(
    select(_g.c.group_id)
    .where(
        _g.c.served > 0,
        _g.c.ready_seq.is_(None),
        or_(_g.c.state == "closed", and_(_g.c.size.is_(None), _g.c.timeout_at.is_(None))),
    )
    .limit(parameter("limit"))
)


def sequence_problems(database: Database) -> Iterator[Problem]:
    """Numbers that consumers and followers go by: used ones over the allotted, or missing ones."""
    with database.reading() as reader:

        def allotted(name: str) -> int:
            rows = reader.execute(_ALLOTTED, {"name": f"pk.{name}"})
            return int(rows[0][0]) if rows else 0

        limits = {name: allotted(name) for name in (*_TOPS, "events")}
        tops = [
            (name, table, int(reader.execute(statement)[0][0]))
            for name, found in _TOPS.items()
            for table, statement in found
        ]
        last = int(reader.execute(_LAST_EVENT)[0][0])
        unnumbered = reader.execute(_UNNUMBERED, {"limit": MAX})
        groups = reader.execute(_GROUPS_UNNUMBERED, {"limit": MAX})
    for name, table, top in tops:
        if top > limits[name]:
            message = f"{table} goes up to {top} of {name}, the counter pk.{name} says {limits[name]}"
            yield Problem("sequence", table, name, message, "Consumers miss what comes next. " + _RESTORE)
    if last < limits["events"]:
        message = f"the newest event is {last}, but {limits['events']} were written"
        yield Problem("sequence", "events", str(last), message, "Followers miss them; compare with the trajectories")
    for table, rows in (("trajectories", unnumbered), ("groups", groups)):
        for row in rows:
            message = "it is fit to be served, but has no ready_seq, so no consumer finds it"
            yield Problem("sequence", table, row[0], message, "Set its reward again; " + _RESTORE)


# --- words --------------------------------------------------------------------------------------------------------
_WORDS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (_t.c.status, get_args(TrajectoryStatus)),
    (_t.c.readiness, get_args(Readiness)),
    (_g.c.state, ("open", "closed")),
    (schema.deliveries.c.state, get_args(UnitState)),
    (schema.deliveries.c.unit, get_args(Unit)),
    (schema.batches.c.state, get_args(LeaseState)),
    (schema.batches.c.unit, get_args(Unit)),
    (schema.backlog.c.unit, get_args(Unit)),
    (schema.positions.c.unit, (*get_args(Unit), "comparison")),
    (schema.exchanges.c.status, ("ok", "aborted", "error")),
    (_f.c.kind, get_args(FeedbackKind)),
    *((table.c.target, ("step", "trajectory")) for table in (_r, _f, _a, _aw)),
    (schema.pins.c.target, ("trajectory",)),
    (schema.tombstones.c.kind, ("trajectory", "step", "user")),
)
_OTHER_WORDS = [
    (column, sql(select(column, func.count()).where(column.not_in(words)).group_by(column).limit(parameter("limit"))))
    for column, words in _WORDS
]


def word_problems(database: Database) -> Iterator[Problem]:
    """States, kinds and units that there are not."""
    for column, statement in _OTHER_WORDS:
        with database.reading() as reader:
            rows = reader.execute(statement, {"limit": MAX})
        for row in rows:
            message = f"{column.name} is {row[0][:40]!r} in {row[1]} rows, which means nothing"
            yield Problem("reference", column.table.name, column.name, message, _RESTORE)


# --- targets ------------------------------------------------------------------------------------------------------
def _nowhere(table: Table, target: str) -> Statement:
    there = select(_s.c.step_id if target == "step" else _t.c.trajectory_id)
    there = there.where((_s.c.step_id if target == "step" else _t.c.trajectory_id) == table.c.target_id)
    conditions = [table.c.target == target, ~there.correlate(table).exists()]
    if table is not schema.pins:
        waits = select(_aw.c.target).where(_aw.c.target == target, _aw.c.target_id == table.c.target_id)
        conditions.append(~waits.correlate(table).exists())
    return sql(select(table.c.target_id).where(*conditions).limit(parameter("limit")))


_NOWHERE = [
    (table, target, _nowhere(table, target))
    for table in (_r, _f, _a, schema.pins)
    for target in (("trajectory",) if table is schema.pins else ("step", "trajectory"))
]


def target_problems(database: Database) -> Iterator[Problem]:
    """Signals and pins on what is neither there nor awaited."""
    for table, target, statement in _NOWHERE:
        with database.reading() as reader:
            rows = reader.execute(statement, {"limit": MAX})
        for row in rows:
            message = f"the {target} is neither there nor awaited"
            yield Problem("reference", table.name, row[0], message, "It has no effect; send it again for the right one")


# --- what rows hold -----------------------------------------------------------------------------------------------
_JSON: dict[Table, tuple[str, ...]] = {
    _t: ("task", "metadata", "rewards", "labels", "annotations", "sampling"),
    _s: ("rewards", "labels", "metadata", "call", "annotations"),
    schema.exchanges: ("record",),
    _r: ("details",),
    _f: ("value", "comment"),
    schema.events: ("data",),
    schema.batches: ("spec",),
}
_KEYS: dict[Table, Any] = {_t: _t.c.trajectory_id, _s: _s.c.step_id}
_JSON_ROWS = {
    table: sql(
        select(_KEYS.get(table, table.c.pk).label("named"), *(table.c[name] for name in names)).where(
            table.c.pk > parameter("above"), table.c.pk <= parameter("upto")
        )
    )
    for table, names in _JSON.items()
}
_ARRAYS = sql(
    select(_a.c.pk, _a.c.target_id, _a.c.dtype, _a.c.shape, _a.c.data).where(
        _a.c.pk > parameter("above"), _a.c.pk <= parameter("upto")
    )
)
_HIGHEST = {table: sql(select(func.coalesce(func.max(table.c.pk), 0))) for table in (*_JSON, _a)}


def row_problems(database: Database, progress: Progress) -> Iterator[Problem]:
    """JSON that is none, and annotations whose bytes are not of their shape."""
    for table, names in _JSON.items():
        for row in _chunks(database, table, _JSON_ROWS[table], progress):
            for name in names:
                if row[name] is not None and not _is_json(row[name]):
                    yield Problem("hash", table.name, str(row["named"]), f"{name} is no JSON", _RESTORE)
    for row in _chunks(database, _a, _ARRAYS, progress):
        if (fault := _array_fault(row)) is not None:
            yield Problem("hash", "annotations", row["target_id"], fault, "Send the annotation again")


def _chunks(database: Database, table: Table, statement: Statement, progress: Progress) -> Iterator[Any]:
    with database.reading() as reader:
        last = int(reader.execute(_HIGHEST[table])[0][0])
    for above in range(0, last, ROWS):
        with database.reading() as reader:
            rows = reader.execute(statement, {"above": above, "upto": above + ROWS})
        yield from rows
        progress(table.name, min(above + ROWS, last), last)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return False
    return True


def _array_fault(row: Any) -> str | None:
    try:
        shape = msgspec.json.decode(row["shape"], type=list[int])
        size = math.prod(shape) * np.dtype(row["dtype"]).itemsize
    except (msgspec.MsgspecError, TypeError):
        return f"{row['dtype'][:20]!r} and {row['shape'][:40]!r} are no dtype and shape"
    there = len(bytes(row["data"]))
    return None if there == size else f"its data has {there} bytes, dtype and shape give {size}"


# --- effective values ---------------------------------------------------------------------------------------------
_OWN: tuple[tuple[str, Table, Any], ...] = (("step", _s, _s.c.step_id), ("trajectory", _t, _t.c.trajectory_id))
_EFFECTIVE = {
    target: (
        table,
        sql(
            select(table.c.pk, key.label("named"), table.c.rewards, table.c.reward, table.c.labels)
            .select_from(table if table is _t else _s.join(_t, _t.c.pk == _s.c.trajectory))
            # What an import that broke off left is half there, and served to nobody; the next one goes on with it.
            .where(_t.c.excluded_reason.is_distinct_from(IMPORTING))
            .where(table.c.pk > parameter("above"), table.c.pk <= parameter("upto"))
        ),
        sql(
            select(table.c.pk, _r.c.name, _r.c.value)
            .join_from(table, _r, and_(_r.c.target == target, _r.c.target_id == key))
            .where(table.c.pk > parameter("above"), table.c.pk <= parameter("upto"))
            .order_by(_r.c.pk)
        ),
        sql(
            select(table.c.pk, _f.c.name, _f.c.value)
            .join_from(table, _f, and_(_f.c.target == target, _f.c.target_id == key, _f.c.kind == "label"))
            .where(table.c.pk > parameter("above"), table.c.pk <= parameter("upto"), _f.c.name.is_not(None))
            .order_by(_f.c.pk)
        ),
    )
    for target, table, key in _OWN
}


def effective_problems(database: Database) -> Iterator[Problem]:
    """Rewards and labels of steps and trajectories that are not those which were set last."""
    for table, own, rewards, labels in _EFFECTIVE.values():
        with database.reading() as reader:
            last = int(reader.execute(_HIGHEST[table])[0][0])
        for above in range(0, last, ROWS):
            bound = {"above": above, "upto": above + ROWS}
            with database.reading() as reader:
                rows = reader.execute(own, bound)
                values: dict[int, dict[str, float]] = {}
                for row in reader.execute(rewards, bound):
                    values.setdefault(row["pk"], {})[original(row["name"])] = row["value"]
                said: dict[int, dict[str, Any]] = {}
                for row in reader.execute(labels, bound):
                    said.setdefault(row["pk"], {})[original(row["name"])] = row["value"]
            for row in rows:
                yield from _effective(table.name, row, values.get(row["pk"], {}), said.get(row["pk"], {}))


def _effective(table: str, row: Any, values: dict[str, float], said: dict[str, Any]) -> Iterator[Problem]:
    hint = "What is served and filtered by it is wrong: set the reward or label again"
    try:
        kept = read_json(row["rewards"] or "{}", dict[str, float])
        labels = read_json(row["labels"] or "{}", dict[str, Any])
        last = {name: None if value is None else read_json(value, Any) for name, value in said.items()}
    except (msgspec.MsgspecError, UnicodeError):
        return  # No JSON, which is named as such.
    if kept != values or row["reward"] != kept.get("reward"):
        yield Problem("count", table, row["named"], f"rewards are {kept}, those that were set give {values}", hint)
    # Feedback without a value takes the label away.
    wrong = [name for name, value in last.items() if labels.get(name) != value]
    if wrong:
        message = f"labels {', '.join(sorted(wrong))} are not what feedback said last"
        yield Problem("count", table, row["named"], message, hint)
