"""The rows of feedback, and the labels that it sets on its target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from sqlalchemy import Select, delete, func, insert, select

from agentworld.pool import schema
from agentworld.pool.counters import FEEDBACK
from agentworld.pool.exact_text import stored_json
from agentworld.pool.signal_rules import CheckedSignal, other_feedback, same_feedback
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.events import Events
from agentworld.pool.sql.lookups import among_texts, unindexed
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
from agentworld.pool.sql.targets import Found
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Feedback

_f = schema.feedback
CHOSEN = ("kind", "source", "name")  # columns that a listing may choose by
LOOKED_AT = 10_000  # rows that one page of such a listing looks at, where no index leads to them
_FIND = sql(select(_f).where(among_texts(_f.c.feedback_id, "ids")))
_INSERT = sql(insert(_f).values({column.name: parameter(column.name) for column in _f.c}))
_DELETE = sql(delete(_f).where(_f.c.pk == parameter("row")))
_OF_TARGETS = sql(
    select(_f).where(_f.c.target == parameter("kind"), among_texts(_f.c.target_id, "ids")).order_by(_f.c.pk)
)


class FeedbackRows:
    """Feedback that one operation stores: what is there under the same ids is read at once, the rest is written by
    `write`.
    """

    def __init__(self, txn: Transaction, ids: list[str]) -> None:
        self._txn = txn
        self._known: dict[str, Feedback] = {}
        self._stored: set[str] = set()
        self._rows: list[dict[str, Any]] = []
        if ids:
            found = txn.execute(_FIND, {"ids": json_list(ids)})
            self._known = {row["feedback_id"]: feedback_from(row) for row in found}
            self._stored = set(self._known)

    def check(self, sent: Feedback, path: str) -> None:
        """ConflictError where something else is there, or came before in the same call, under its id."""
        feedback_id = sent.feedback_id or ""
        if not same_feedback(self._known.setdefault(feedback_id, sent), sent):
            raise other_feedback(feedback_id, path)

    def keep(self, signal: CheckedSignal) -> bool:
        """Store feedback that was checked; False where it is there."""
        sent = signal.record
        assert isinstance(sent, Feedback)
        if sent.feedback_id in self._stored:
            return False
        self._stored.add(sent.feedback_id or "")
        self._rows.append(
            {
                "pk": self._txn.next_pk("feedback"),
                "feedback_id": sent.feedback_id,
                "kind": sent.kind,
                "target": signal.target,
                "target_id": signal.target_id,
                "other_id": sent.other_id,
                "name": sent.name,
                "value": _json(sent.value),
                "comment": _json(sent.comment),
                "source": sent.source,
                "content": sent.content,
                "of_trajectory": sent.trajectory_id if signal.target == "step" else None,
                "created_at": sent.created_at or self._txn.now,
            }
        )
        self._txn.count(FEEDBACK + sent.kind)
        return True

    def write(self) -> None:
        """Write what was kept."""
        self._txn.many(_INSERT, self._rows)
        self._rows = []


def apply_feedback(events: Events, target: Found, sent: Feedback) -> bool:
    """Tell of feedback on a target that is there, and set its label; whether anything to serve by has changed."""
    data = {"feedback_id": sent.feedback_id, "kind": sent.kind}
    events.add("feedback.added", target.trajectory_id, target.step_id, data, channel=target.channel)
    if sent.kind != "label" or sent.name is None:
        return False
    target.set_label(sent)
    data = {"name": sent.name, "source": sent.source}
    events.add("label.set", target.trajectory_id, target.step_id, data, channel=target.channel)
    return True


def feedback_of(txn: Transaction, kind: str, ids: list[str]) -> list[Row]:
    """The rows on these targets, in the order of their commits."""
    return txn.execute(_OF_TARGETS, {"kind": kind, "ids": json_list(ids)})


def drop_feedback(txn: Transaction, rows: Sequence[Row]) -> None:
    """Take rows away."""
    txn.many(_DELETE, [{"row": row["pk"]} for row in rows])
    for row in rows:
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
        content=row["content"],
        created_at=row["created_at"],
    )


def read_of_targets(reader: Reader, wanted: dict[str, list[str]]) -> list[Feedback]:
    """Feedback on targets by their kind, in the order of commits within each kind."""
    return [
        feedback_from(row)
        for kind, ids in wanted.items()
        if ids
        for row in reader.execute(_OF_TARGETS, {"kind": kind, "ids": json_list(ids)})
    ]


def list_rows(
    reader: Reader, target: tuple[str, str] | None, chosen: Mapping[str, str | None], after: int, limit: int
) -> tuple[Sequence[Row], int | None]:
    """Feedback with a key over `after`, on one target or on all, with these values in columns of `CHOSEN`; and the key
    that was looked up to, where there is more behind it.
    """
    bound: dict[str, Any] = {"after": after, "limit": limit}
    asked = frozenset(name for name, value in chosen.items() if value is not None)
    bound |= {f"of_{name}": chosen[name] for name in asked}
    if target is not None:
        return reader.execute(_LISTS[True, asked], bound | {"of_target": target[0], "of_id": target[1]}), None
    last = int(reader.execute(_LAST)[0]["last"] or 0) if asked else 0
    until = after + LOOKED_AT
    rows = reader.execute(_LISTS[False, asked], bound | ({"until": until} if asked else {}))
    return rows, until if until < last else None


def _list_sql(by_target: bool, asked: Iterable[str]) -> Statement:
    statement: Select[Any] = select(_f).where(_f.c.pk > parameter("after"))
    if by_target:
        statement = statement.where(_f.c.target == parameter("of_target"), _f.c.target_id == parameter("of_id"))
    elif asked:
        statement = statement.where(_f.c.pk <= parameter("until"))
    statement = statement.where(*(unindexed(_f.c[name] == parameter(f"of_{name}")) for name in sorted(asked)))
    return sql(statement.order_by(_f.c.pk).limit(parameter("limit")))


_LAST = sql(select(func.max(_f.c.pk).label("last")))
_LISTS = {
    (by_target, frozenset(asked)): _list_sql(by_target, asked)
    for by_target in (False, True)
    for count in range(len(CHOSEN) + 1)
    for asked in combinations(CHOSEN, count)
}


def _json(value: Any) -> str | None:
    return None if value is None else stored_json(value).decode()
