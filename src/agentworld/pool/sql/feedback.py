"""The rows of feedback, and the labels that it sets on its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, delete, insert, select, update

from agentworld.errors import ConflictError
from agentworld.pool import schema
from agentworld.pool.counters import FEEDBACK
from agentworld.pool.exact_text import stored_json
from agentworld.pool.signal_rules import CheckedSignal, same_feedback
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import Statement, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Feedback

_f, _s, _t = schema.feedback, schema.steps, schema.trajectories
_FIND = sql(select(_f).where(_f.c.feedback_id == parameter("id")))
_INSERT = sql(insert(_f).values({column.name: parameter(column.name) for column in _f.c}))
_DELETE = sql(delete(_f).where(_f.c.pk == parameter("row")))
_OF_TARGET = sql(
    select(_f).where(_f.c.target == parameter("kind"), _f.c.target_id == parameter("id")).order_by(_f.c.pk)
)
_LABELS = {
    "step": sql(update(_s).where(_s.c.pk == parameter("row")).values(labels=parameter("all_labels"))),
    "trajectory": sql(update(_t).where(_t.c.pk == parameter("row")).values(labels=parameter("all_labels"))),
}


def keep_feedback(txn: Transaction, signal: CheckedSignal) -> bool:
    """Store feedback; False where it is there under its id, ConflictError where something else is."""
    sent = signal.record
    assert isinstance(sent, Feedback)
    known = txn.one(_FIND, {"id": sent.feedback_id})
    if known is not None:
        if same_feedback(feedback_from(known), sent):
            return False
        raise ConflictError(
            f"feedback {sent.feedback_id!r} is there with other content",
            path=f"{signal.path}.feedback_id",
            hint="Use a new feedback_id",
        )
    row = {
        "pk": txn.next_pk("feedback"),
        "feedback_id": sent.feedback_id,
        "kind": sent.kind,
        "target": signal.target,
        "target_id": signal.target_id,
        "other_id": sent.other_id,
        "name": sent.name,
        "value": _json(sent.value),
        "comment": _json(sent.comment),
        "source": sent.source,
        "of_trajectory": sent.trajectory_id if signal.target == "step" else None,
        "created_at": sent.created_at or txn.now,
    }
    txn.execute(_INSERT, row)
    txn.count(FEEDBACK + sent.kind)
    return True


def apply_feedback(txn: Transaction, kind: str, row: Row, target_id: str, sent: Feedback) -> bool:
    """Tell of feedback on a target that is there, and set its label; whether anything to serve by has changed."""
    step_id = target_id if kind == "step" else None
    data = {"feedback_id": sent.feedback_id, "kind": sent.kind}
    add_event(txn, "feedback.added", row["trajectory_id"], step_id, data)
    if sent.kind != "label" or sent.name is None:
        return False
    labels = with_label(from_json(row["labels"], {}), sent)
    txn.execute(_LABELS[kind], {"row": row["pk"], "all_labels": json_or_none(labels)})
    data = {"name": sent.name, "source": sent.source}
    add_event(txn, "label.set", row["trajectory_id"], step_id, data)
    return True


def with_label(labels: Mapping[str, Any], sent: Feedback) -> dict[str, Any]:
    """Labels with this one set, or taken away."""
    others = {name: value for name, value in labels.items() if name != sent.name}
    return others if sent.value is None or sent.name is None else {**others, sent.name: sent.value}


def feedback_of(txn: Transaction, kind: str, target_id: str) -> list[Row]:
    """The rows on one target, in the order of their commits."""
    return txn.execute(_OF_TARGET, {"kind": kind, "id": target_id})


def drop_feedback(txn: Transaction, row: Row) -> None:
    """Take one row away."""
    txn.execute(_DELETE, {"row": row["pk"]})
    txn.count(FEEDBACK + row["kind"], -1)


def feedback_from(row: Row) -> Feedback:
    """A row as a record."""
    on_step = row["target"] == "step"
    return Feedback(
        kind=row["kind"],
        feedback_id=row["feedback_id"],
        trajectory_id=row["of_trajectory"] if on_step else row["target_id"],
        step_id=row["target_id"] if on_step else None,
        other_id=row["other_id"],
        name=row["name"],
        value=from_json(row["value"], None),
        comment=from_json(row["comment"], None),
        source=row["source"],
        created_at=row["created_at"],
    )


def list_rows(
    reader: Reader, target: tuple[str, str] | None, kind: str | None, after: int, limit: int
) -> Sequence[Row]:
    """Feedback with a key over `after`, on one target or on all, of one kind or of all."""
    bound: dict[str, Any] = {"after": after, "limit": limit}
    if target is not None:
        bound |= {"of_target": target[0], "of_id": target[1]}
    if kind is not None:
        bound["of_kind"] = kind
    return reader.execute(_LISTS[target is not None, kind is not None], bound)


def _list_sql(by_target: bool, by_kind: bool) -> Statement:
    statement: Select[Any] = select(_f).where(_f.c.pk > parameter("after"))
    if by_target:
        statement = statement.where(_f.c.target == parameter("of_target"), _f.c.target_id == parameter("of_id"))
    if by_kind:
        statement = statement.where(_f.c.kind == parameter("of_kind"))
    return sql(statement.order_by(_f.c.pk).limit(parameter("limit")))


_LISTS = {(target, kind): _list_sql(target, kind) for target in (False, True) for kind in (False, True)}


def _json(value: Any) -> str | None:
    return None if value is None else stored_json(value).decode()
