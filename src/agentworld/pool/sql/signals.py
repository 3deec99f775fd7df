"""Rewards, feedback and annotations inside a transaction: on a target that is there, or waiting for one that is not.

What an operation needs is read in a few statements, planned in memory and written table by table: others wait for the
pool's lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import delete, insert, select

from agentworld.errors import GoneError, InvalidRequestError
from agentworld.pool import schema
from agentworld.pool.counters import AWAITED, DEAD_LETTERS, TOMBSTONES
from agentworld.pool.exact_text import stored_json
from agentworld.pool.results import SignalsResult
from agentworld.pool.signal_rules import CheckedSignal, Target, length_fault, other_trajectory
from agentworld.pool.sql.annotations import (
    AnnotationRows,
    about_from,
    annotations_of,
    apply_annotation,
    drop_annotations,
)
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.events import Events, add_event
from agentworld.pool.sql.feedback import FeedbackRows, apply_feedback, drop_feedback, feedback_from, feedback_of
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.policies import PAUSED, PAUSES, current_policies, set_paused, set_policy
from agentworld.pool.sql.rewards import (
    RewardRows,
    apply_reward,
    drop_rewards,
    renew_rewards,
    reward_from,
    rewards_of,
)
from agentworld.pool.sql.standing import settle_touched
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.targets import Found, Targets
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Annotation, Feedback, Reward

__all__ = [
    "PAUSED",
    "PAUSES",
    "add_event",
    "add_signals",
    "apply_awaited",
    "check_not_deleted",
    "current_policies",
    "set_paused",
    "set_policy",
]

_w, _d, _x = schema.awaited, schema.dead_letters, schema.tombstones
_KINDS: tuple[Target, ...] = ("step", "trajectory")
_WAITING = sql(
    select(_w.c.target_id)
    .where(_w.c.target == parameter("kind"), among_texts(_w.c.target_id, "ids"))
    .order_by(_w.c.since, _w.c.target_id)
)
_AWAIT = sql(insert(_w).values({column.name: parameter(column.name) for column in _w.c}))
_ARRIVED = sql(delete(_w).where(_w.c.target == parameter("kind"), _w.c.target_id == parameter("id")))
_BURY = sql(insert(_d).values({column.name: parameter(column.name) for column in _d.c}))
_TOMBSTONES = sql(select(_x.c.kind, _x.c.target_id, _x.c.reason).where(among_texts(_x.c.target_id, "ids")))


def add_signals(txn: Transaction, signals: Sequence[CheckedSignal]) -> SignalsResult:
    """Store signals and put them on their targets; those whose target is not there wait for it."""
    targets, there = _load(txn, signals)
    feedback = _known_feedback(txn, signals)
    _check(txn, signals, there, feedback)
    rewards, annotations = RewardRows(txn), AnnotationRows(txn)
    for kind in _KINDS:
        rewards.load(kind, (one.target_id for one in signals if one.target == kind and one.kind == "reward"))
    annotations.load([one for one in signals if one.kind == "annotation"])
    events, waits = Events(txn), _Waiting(txn)
    changed = 0
    touched: dict[int, None] = {}
    steps: dict[int, None] = {}  # of the touched
    for signal, found in zip(signals, there, strict=True):
        if found is None:
            waits.named[signal.target, signal.target_id] = None
        record = signal.record
        if isinstance(record, Reward):
            is_new = rewards.keep(signal.target, signal.target_id, record)
        else:
            is_new = feedback.keep(signal) if isinstance(record, Feedback) else annotations.keep(signal)
        if not is_new:
            continue
        changed += 1
        if found is None:
            waits.new[signal.target, signal.target_id] = None
            events.add("signal.waiting", record.trajectory_id, record.step_id, {"kind": signal.kind})
        elif _apply(events, found, record):
            touched[found.trajectory] = None
            if found.kind == "step":
                steps[found.pk] = None
    for rows in (rewards, feedback, annotations, waits, targets, events):
        rows.write()
    settle_touched(txn, touched, steps)
    reached = sum(found is not None for found in there)
    return SignalsResult(changed, reached, list(dict.fromkeys(target_id for _, target_id in waits.named)))


def check(txn: Transaction, signals: Sequence[CheckedSignal]) -> None:
    """Raise what is the matter with the first signal that `add_signals` would refuse."""
    there = _load(txn, signals)[1]
    _check(txn, signals, there, _known_feedback(txn, signals))


def waiting_among(txn: Transaction, target: Target, ids: Iterable[str]) -> list[str]:
    """Those of these ids that signals wait for."""
    if txn.counter(AWAITED) <= 0:
        return []
    return [row["target_id"] for row in txn.execute(_WAITING, {"kind": target, "ids": json_list(list(ids))})]


def apply_awaited(txn: Transaction, target: Target, ids: Iterable[str]) -> None:
    """Put what waited for these new steps or trajectories on their rows.

    What contradicts its target becomes a dead letter with the reason. Call it after the rows are inserted; it costs
    nothing while nothing waits.
    """
    waiting = waiting_among(txn, target, ids)
    if not waiting:
        return
    targets = Targets(txn)
    targets.load(target, waiting)
    # The signals of a step that was rejected go on waiting.
    arrived = {name: found for name in waiting if (found := targets.get(target, name)) is not None}
    _arrive(txn, target, arrived)
    targets.write()
    txn.many(_ARRIVED, [{"kind": target, "id": name} for name in arrived])
    txn.count(AWAITED, -len(arrived))
    settle_touched(txn, dict.fromkeys(found.trajectory for found in arrived.values()))


def check_not_deleted(txn: Transaction, kind: Literal["step", "trajectory", "user"], target_id: str, path: str) -> None:
    """GoneError where the step or trajectory, or all of the user, was deleted on request."""
    deleted = deleted_among(txn, [target_id])
    if (kind, target_id) in deleted:
        raise was_deleted(kind, target_id, deleted[kind, target_id], path)


def deleted_among(txn: Transaction, ids: Iterable[str]) -> dict[tuple[str, str], str | None]:
    """Why those of these ids that were deleted on request were, by kind and id."""
    if txn.counter(TOMBSTONES) <= 0:
        return {}
    found = txn.execute(_TOMBSTONES, {"ids": json_list(list(dict.fromkeys(ids)))})
    return {(row["kind"], row["target_id"]): row["reason"] for row in found}


def was_deleted(kind: str, target_id: str, reason: str | None, path: str) -> GoneError:
    """The error of what was deleted on request."""
    why = f" ({reason})" if reason else ""
    return GoneError(f"{kind} {target_id!r} was deleted{why}", path=path, hint="Use a new id")


def _load(txn: Transaction, signals: Sequence[CheckedSignal]) -> tuple[Targets, list[Found | None]]:
    targets = Targets(txn)
    for kind in _KINDS:
        targets.load(kind, (signal.target_id for signal in signals if signal.target == kind))
    return targets, [targets.get(signal.target, signal.target_id) for signal in signals]


def _known_feedback(txn: Transaction, signals: Sequence[CheckedSignal]) -> FeedbackRows:
    return FeedbackRows(txn, [one.record.feedback_id or "" for one in signals if isinstance(one.record, Feedback)])


def _check(
    txn: Transaction, signals: Sequence[CheckedSignal], there: Sequence[Found | None], feedback: FeedbackRows
) -> None:
    """Raise what is the matter with the first signal that does not go with its target or with what is stored."""
    missing = [signal for signal, found in zip(signals, there, strict=True) if found is None]
    named = [name for one in missing for name in (one.target_id, one.record.trajectory_id) if name is not None]
    deleted = deleted_among(txn, named) if named else {}
    for signal, found in zip(signals, there, strict=True):
        record = signal.record
        if found is None:
            for kind, name in ((signal.target, signal.target_id), ("trajectory", record.trajectory_id)):
                if name is not None and (kind, name) in deleted:
                    raise was_deleted(kind, name, deleted[kind, name], signal.path)
        elif found.kind == "step":
            if record.trajectory_id not in (None, found.trajectory_id):
                raise other_trajectory(signal.target_id, record.trajectory_id, signal.path)
            if isinstance(record, Annotation):
                fault = length_fault(record.shape, record.per_token, found.length)
                if fault is not None:
                    hint = "Set per_token to false where it is about the step"
                    raise InvalidRequestError(fault, path=f"{signal.path}.values", hint=hint)
        if isinstance(record, Feedback):
            feedback.check(record, signal.path)


def _apply(events: Events, target: Found, record: Reward | Feedback | Annotation) -> bool:
    """Put a stored signal on its target; whether anything to serve by has changed."""
    if isinstance(record, Reward):
        apply_reward(events, target, record)
        return True
    if isinstance(record, Feedback):
        return apply_feedback(events, target, record)
    apply_annotation(events, target, record)
    return True


class _Waiting:
    """Targets that are not there: those that a call has named, and those that something new waits for."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self.named: dict[tuple[Target, str], None] = {}
        self.new: dict[tuple[Target, str], None] = {}

    def write(self) -> None:
        """Note those that nothing has waited for before."""
        txn, rows = self._txn, []
        for kind in _KINDS:
            ids = [name for of_kind, name in self.new if of_kind == kind]
            if not ids:
                continue
            known: set[str] = set()
            if txn.counter(AWAITED) > 0:
                known = {row["target_id"] for row in txn.execute(_WAITING, {"kind": kind, "ids": json_list(ids)})}
            rows += [{"target": kind, "target_id": name, "since": txn.now} for name in ids if name not in known]
        txn.many(_AWAIT, rows)
        txn.count(AWAITED, len(rows))


def _arrive(txn: Transaction, target: Target, arrived: Mapping[str, Found]) -> None:
    """Apply all that waited for these targets: one after the other, each in the order in which it came."""
    ids = list(arrived)
    if not ids:
        return
    rewards = _by_target(rewards_of(txn, target, ids))
    feedback = _by_target(feedback_of(txn, target, ids))
    annotations = _by_target(annotations_of(txn, target, ids))
    events, dead = Events(txn), _DeadLetters(txn)
    renewed: list[int] = []
    wrong: tuple[list[int], list[Row], list[int]] = ([], [], [])
    for name, found in arrived.items():
        own = set(found.rewards)
        for kept in rewards.get(name, ()):
            if kept["source"] == "step" and kept["name"] in own:
                continue  # Came with the step itself; what others say of it wins, whichever comes first.
            if _is_of(kept, found):
                renewed.append(kept["pk"])
                apply_reward(events, found, reward_from(kept))
            else:
                wrong[0].append(kept["pk"])
                dead.add("reward", _other(kept), reward_from(kept))
        for kept in feedback.get(name, ()):
            if _is_of(kept, found):
                apply_feedback(events, found, feedback_from(kept))
            else:
                wrong[1].append(kept)
                dead.add("feedback", _other(kept), feedback_from(kept))
        for kept in annotations.get(name, ()):
            about = about_from(kept)
            fault = None if _is_of(kept, found) else _other(kept)
            if fault is None and target == "step":
                fault = length_fault(about.shape, about.per_token, found.length)
            if fault is None:
                apply_annotation(events, found, about)
            else:
                wrong[2].append(kept["pk"])
                dead.add("annotation", fault, about)
    renew_rewards(txn, renewed)
    drop_rewards(txn, wrong[0])
    drop_feedback(txn, wrong[1])
    drop_annotations(txn, wrong[2])
    events.write()
    dead.write()


def _by_target(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["target_id"], []).append(row)
    return found


def _is_of(kept: Row, target: Found) -> bool:
    return kept["of_trajectory"] in (None, target.trajectory_id)


def _other(kept: Row) -> str:
    return other_trajectory(kept["target_id"], kept["of_trajectory"], "").message


class _DeadLetters:
    """Signals that turned out to contradict their target."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._rows: list[dict[str, Any]] = []

    def add(self, kind: str, reason: str, record: Reward | Feedback | Annotation) -> None:
        """Note one."""
        self._rows.append(
            {
                "pk": self._txn.next_pk("dead_letters"),
                "kind": kind,
                "step_id": record.step_id or "",
                "trajectory_id": record.trajectory_id or "",
                "reason": reason,
                "record": stored_json(record).decode()[:65_536],
                "at": self._txn.now,
            }
        )

    def write(self) -> None:
        """Write them."""
        self._txn.many(_BURY, self._rows)
        self._txn.count(DEAD_LETTERS, len(self._rows))
