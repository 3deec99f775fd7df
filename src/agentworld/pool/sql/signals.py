"""Rewards, feedback and annotations inside a transaction: on a target that is there, or waiting for one that is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Select, delete, insert, select

from agentworld.errors import GoneError, InvalidRequestError
from agentworld.pool import schema
from agentworld.pool.counters import AWAITED, DEAD_LETTERS, TOMBSTONES
from agentworld.pool.exact_text import stored_json
from agentworld.pool.results import SignalsResult
from agentworld.pool.signal_rules import CheckedSignal, Target, length_fault, other_trajectory
from agentworld.pool.sql.annotations import (
    about_from,
    annotations_of,
    apply_annotation,
    drop_annotation,
    keep_annotation,
)
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.feedback import apply_feedback, drop_feedback, feedback_from, feedback_of, keep_feedback
from agentworld.pool.sql.policies import PAUSED, current_policies, set_paused, set_policy
from agentworld.pool.sql.rewards import apply_reward, drop_reward, keep_reward, renew_reward, rewards_of
from agentworld.pool.sql.rows import from_json
from agentworld.pool.sql.standing import by_pk, settle
from agentworld.pool.sql.statements import json_list, parameter, sql, texts
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Annotation, Feedback, Reward

__all__ = [
    "PAUSED",
    "add_event",
    "add_signals",
    "apply_awaited",
    "check_not_deleted",
    "current_policies",
    "keep_reward",
    "set_paused",
    "set_policy",
]

_s, _t, _w, _d = schema.steps, schema.trajectories, schema.awaited, schema.dead_letters
_SIGNALS = ("rewards", "labels", "annotations")


def _targets(where: Any, table: Any, length: Any) -> Select[Any]:
    columns = [table.c.pk.label("pk"), *(table.c[name].label(name) for name in _SIGNALS)]
    found = select(*columns, _t.c.pk.label("trajectory"), _t.c.trajectory_id.label("trajectory_id"), length)
    if table is _s:
        found = found.join_from(_s, _t, _s.c.trajectory == _t.c.pk)
    return found.where(where)


_FIND = {
    "step": sql(_targets(_s.c.step_id == parameter("id"), _s, _s.c.response_length.label("length"))),
    "trajectory": sql(_targets(_t.c.trajectory_id == parameter("id"), _t, _t.c.step_count.label("length"))),
}
_key = (_w.c.target == parameter("kind"), _w.c.target_id == parameter("id"))
_WAITS = sql(select(_w.c.target_id).where(*_key))
_WAITING = sql(
    select(_w.c.target_id)
    .where(_w.c.target == parameter("kind"), _w.c.target_id.in_(texts("ids")))
    .order_by(_w.c.since, _w.c.target_id)
)
_AWAIT = sql(insert(_w).values({column.name: parameter(column.name) for column in _w.c}))
_ARRIVED = sql(delete(_w).where(*_key))
_BURY = sql(insert(_d).values({column.name: parameter(column.name) for column in _d.c}))
_TOMBSTONE = sql(
    select(schema.tombstones.c.reason).where(
        schema.tombstones.c.kind == parameter("of_kind"), schema.tombstones.c.target_id == parameter("id")
    )
)
_STORED: dict[str, Any] = {
    "reward": lambda txn, one: keep_reward(txn, one.target, one.target_id, one.record),
    "feedback": keep_feedback,
    "annotation": keep_annotation,
}


def add_signals(txn: Transaction, signals: Sequence[CheckedSignal]) -> SignalsResult:
    """Store signals and put them on their targets; those whose target is not there wait for it."""
    changed = reached = 0
    waiting: dict[str, None] = {}
    before: dict[int, Row] = {}  # trajectories to settle, as they were
    touched: set[int] = set()
    for signal in signals:
        row = txn.one(_FIND[signal.target], {"id": signal.target_id})
        if row is None:
            check_not_deleted(txn, signal.target, signal.target_id, signal.path)
            if signal.record.trajectory_id is not None:
                check_not_deleted(txn, "trajectory", signal.record.trajectory_id, signal.path)
            waiting[signal.target_id] = None
            if _STORED[signal.kind](txn, signal):
                changed += 1
                _wait(txn, signal)
            continue
        reached += 1
        _check_against(signal, row)
        if not _STORED[signal.kind](txn, signal):
            continue
        changed += 1
        pk = row["trajectory"]
        before.setdefault(pk, by_pk(txn, pk))
        if _apply(txn, signal.target, row, signal.target_id, signal.record):
            touched.add(pk)
    for pk, row in before.items():
        if pk in touched:
            settle(txn, row, touched=True)
    return SignalsResult(changed, reached, list(waiting))


def apply_awaited(txn: Transaction, target: Target, ids: Iterable[str]) -> None:
    """Put what waited for these new steps or trajectories on their rows.

    What contradicts its target becomes a dead letter with the reason. Call it after the rows are inserted; it costs
    nothing while nothing waits.
    """
    if txn.counter(AWAITED) <= 0:
        return
    found = txn.execute(_WAITING, {"kind": target, "ids": json_list(list(ids))})
    for waiting in found:
        target_id = waiting["target_id"]
        row = txn.one(_FIND[target], {"id": target_id})
        if row is None:
            continue  # The step was rejected, so its signals go on waiting.
        before = by_pk(txn, row["trajectory"])
        _arrive(txn, target, target_id)
        txn.execute(_ARRIVED, {"kind": target, "id": target_id})
        txn.count(AWAITED, -1)
        settle(txn, before, touched=True)


def check_not_deleted(txn: Transaction, kind: Literal["step", "trajectory", "user"], target_id: str, path: str) -> None:
    """GoneError where the step or trajectory, or all of the user, was deleted on request."""
    if txn.counter(TOMBSTONES) <= 0:
        return
    found = txn.one(_TOMBSTONE, {"of_kind": kind, "id": target_id})
    if found is not None:
        why = f" ({found['reason']})" if found["reason"] else ""
        raise GoneError(f"{kind} {target_id!r} was deleted{why}", path=path, hint="Use a new id")


def _check_against(signal: CheckedSignal, row: Row) -> None:
    named = signal.record.trajectory_id
    if signal.target == "step" and named not in (None, row["trajectory_id"]):
        raise other_trajectory(signal.target_id, named, signal.path)
    if signal.target == "step" and isinstance(signal.record, Annotation):
        fault = length_fault(signal.record.shape, signal.record.per_token, row["length"])
        if fault is not None:
            hint = "Set per_token to false where it is about the step"
            raise InvalidRequestError(fault, path=f"{signal.path}.values", hint=hint)


def _apply(txn: Transaction, kind: str, row: Row, target_id: str, record: Reward | Feedback | Annotation) -> bool:
    """Put a stored signal on its target; whether anything to serve by has changed."""
    if isinstance(record, Reward):
        apply_reward(txn, kind, row, target_id, record)
        return True
    if isinstance(record, Feedback):
        return apply_feedback(txn, kind, row, target_id, record)
    apply_annotation(txn, kind, row, target_id, record)
    return True


def _wait(txn: Transaction, signal: CheckedSignal) -> None:
    key = {"kind": signal.target, "id": signal.target_id}
    if txn.one(_WAITS, key) is None:
        txn.execute(_AWAIT, {"target": signal.target, "target_id": signal.target_id, "since": txn.now})
        txn.count(AWAITED)
    data = {"kind": signal.kind}
    add_event(txn, "signal.waiting", signal.record.trajectory_id, signal.record.step_id, data)


def _arrive(txn: Transaction, target: Target, target_id: str) -> None:
    """Apply all that waited for one target, in the order in which it came."""

    def fresh() -> Row:
        row = txn.one(_FIND[target], {"id": target_id})
        assert row is not None
        return row

    own = from_json(fresh()["rewards"], {})
    for kept in rewards_of(txn, target, target_id):
        if kept["source"] == "step" and kept["name"] in own:
            continue  # Came with the step itself; what others say of it wins, whichever comes first.
        record = _reward_from(kept)
        if _is_of(kept, fresh()):
            renew_reward(txn, kept["pk"])
            apply_reward(txn, target, fresh(), target_id, record)
        else:
            drop_reward(txn, kept["pk"])
            _bury(txn, "reward", kept, _other(kept), record)
    for kept in feedback_of(txn, target, target_id):
        if _is_of(kept, fresh()):
            apply_feedback(txn, target, fresh(), target_id, feedback_from(kept))
        else:
            drop_feedback(txn, kept)
            _bury(txn, "feedback", kept, _other(kept), feedback_from(kept))
    for kept in annotations_of(txn, target, target_id):
        about, row = about_from(kept), fresh()
        fault = None if _is_of(kept, row) else _other(kept)
        if fault is None and target == "step":
            fault = length_fault(about.shape, about.per_token, row["length"])
        if fault is None:
            apply_annotation(txn, target, row, target_id, about)
        else:
            drop_annotation(txn, kept["pk"])
            _bury(txn, "annotation", kept, fault, about)


def _is_of(kept: Row, target: Row) -> bool:
    return kept["of_trajectory"] in (None, target["trajectory_id"])


def _other(kept: Row) -> str:
    return other_trajectory(kept["target_id"], kept["of_trajectory"], "").message


def _reward_from(row: Row) -> Reward:
    on_step = row["target"] == "step"
    return Reward(
        value=row["value"],
        trajectory_id=row["of_trajectory"] if on_step else row["target_id"],
        step_id=row["target_id"] if on_step else None,
        name=row["name"],
        source=row["source"],
        details=from_json(row["details"], None),
        created_at=row["created_at"],
    )


def _bury(txn: Transaction, kind: str, kept: Row, reason: str, record: Any) -> None:
    named: Mapping[str, Any] = {
        "kind": kind,
        "step_id": record.step_id or "",
        "trajectory_id": record.trajectory_id or "",
        "reason": reason,
        "record": stored_json(record).decode()[:65_536],
    }
    txn.execute(_BURY, {"pk": txn.next_pk("dead_letters"), **named, "at": txn.now})
    txn.count(DEAD_LETTERS)
