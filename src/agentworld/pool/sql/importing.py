"""Putting an exported trajectory into a pool as it was: its content by the way of every step, then its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import counters, schema
from agentworld.pool.exact_text import stored_json
from agentworld.pool.group_rules import is_offered, serves
from agentworld.pool.rules import IMPORTING
from agentworld.pool.sql import groups
from agentworld.pool.sql.decisions import ACTIVE, redecide
from agentworld.pool.sql.events import add_event, move_events
from agentworld.pool.sql.rows import json_or_none, policy_columns
from agentworld.pool.sql.standing import settle_touched
from agentworld.pool.sql.statements import json_list, parameter, sql, texts
from agentworld.pool.sql.step_digest import SAID_BYTES
from agentworld.pool.sql.trajectories import FIND, imply
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import NewTrajectory, Step, Trajectory

State = Literal["new", "known", "deleted"]

_t, _s, _tomb = schema.trajectories, schema.steps, schema.tombstones
_BURIED = sql(select(_tomb.c.pk).where(_tomb.c.kind == "trajectory", _tomb.c.target_id == parameter("id")))
_MARK = sql(update(_t).where(_t.c.pk == parameter("row")).values(readiness="excluded", excluded_reason=IMPORTING))
_STEP_COLUMNS = ("excluded_reason", "late", "created_at", "rewards", "reward", "labels", "annotations")
_RESTATE_STEP = sql(
    update(_s)
    .where(_s.c.step_id == parameter("of_step"))
    .values({name: parameter(name) for name in (*_STEP_COLUMNS, "content")})
)
_STEP_KEYS = sql(select(_s.c.pk, _s.c.step_id).where(_s.c.trajectory == parameter("row")))
_decisions = schema.decisions
_ADD_DECISION = sql(insert(_decisions).values({column.name: parameter(column.name) for column in _decisions.c}))
_KNOWN_STEPS = sql(
    select(_s.c.step_id, _s.c.content, _t.c.trajectory_id)
    .join_from(_s, _t, _t.c.pk == _s.c.trajectory)
    .where(_s.c.step_id.in_(texts("ids")))
)
_SAME = (
    *("group_id", "group_size", "rollout_index", "attempt", "agent", "channel", "status", "reward", "readiness"),
    *("excluded_reason", "created_at", "completed_at", "priority"),
)
_COLUMNS = (
    *_SAME,
    *("task", "metadata", "rewards", "labels", "annotations", "user_id", "masked", "ready_seq"),
    *("policy_model", "policy_run", "policy_version"),
)
_RESTATE = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values({"declared": 1, **{name: parameter(name) for name in _COLUMNS}})
)
_TABLES = {
    "exchanges": schema.exchanges,
    "rewards": schema.rewards,
    "feedback": schema.feedback,
    "annotations": schema.annotation_arrays,
}
_ADD = {
    name: sql(insert(table).values({column.name: parameter(column.name) for column in table.columns}))
    for name, table in _TABLES.items()
}
_KNOWN_ROW = {
    "exchanges": sql(select(schema.exchanges.c.pk).where(schema.exchanges.c.exchange_id == parameter("exchange_id"))),
    "feedback": sql(select(schema.feedback.c.pk).where(schema.feedback.c.feedback_id == parameter("feedback_id"))),
    **{
        name: sql(select(table.c.pk).where(*(table.c[key] == parameter(key) for key in keys)))
        for name, table, keys in (
            ("rewards", schema.rewards, ("target", "target_id", "name", "source")),
            ("annotations", schema.annotation_arrays, ("target", "target_id", "name")),
        )
    },
}
_await = upsert(schema.awaited).values({name: parameter(name) for name in ("target", "target_id", "since")})
_AWAIT = sql(_await.on_conflict_do_nothing().returning(schema.awaited.c.target_id))
_BURIED_STEP = sql(select(_tomb.c.pk).where(_tomb.c.kind == "step", _tomb.c.target_id == parameter("id")))
_g = schema.groups
_ADD_GROUP = sql(insert(_g).values({column.name: parameter(column.name) for column in _g.c}))


def begin(txn: Transaction, trajectory_id: str, channel: str) -> State:
    """Make room for a trajectory, unless it is there or was deleted on request."""
    row = txn.one(FIND, {"id": trajectory_id})
    if row is not None:
        return "new" if row["excluded_reason"] == IMPORTING else "known"
    if txn.counter(counters.TOMBSTONES) and txn.one(_BURIED, {"id": trajectory_id}) is not None:
        return "deleted"
    row = imply(txn, trajectory_id, NewTrajectory(channel=channel))
    txn.execute(_MARK, {"row": row["pk"]})
    txn.count(counters.READINESS + row["readiness"], -1)
    txn.count(counters.READINESS + "excluded")
    return "new"


class Known(NamedTuple):
    """A step that is there: the digest of what it said, and its trajectory."""

    content: bytes
    trajectory_id: str


def known_steps(txn: Transaction, step_ids: Sequence[str]) -> dict[str, Known]:
    """The steps that are there, by id."""
    found = txn.execute(_KNOWN_STEPS, {"ids": json_list(step_ids)})
    return {row["step_id"]: Known(bytes(row["content"]), row["trajectory_id"]) for row in found}


def is_same(known: Known, trajectory_id: str, content: bytes | None) -> bool:
    """Whether a step that is there is the exported one: of its trajectory, and saying the same."""
    said = content is not None and len(content) >= SAID_BYTES and known.content[:SAID_BYTES] == content[:SAID_BYTES]
    return said and known.trajectory_id == trajectory_id


def restate_steps(txn: Transaction, steps: Sequence[tuple[Step, bytes | None]]) -> None:
    """Set what a step had become; `content`: the digest of what was sent first, so that sending it again is known."""
    rows = []
    there = known_steps(txn, [step.step_id for step, _ in steps])
    for step, content in steps:
        own = there[step.step_id].content
        if content is not None and len(content) >= SAID_BYTES:
            own = content[:SAID_BYTES] + own[SAID_BYTES:]
        rows.append(
            {
                "of_step": step.step_id,
                "content": own,
                "excluded_reason": step.excluded_reason,
                "late": int(step.late),
                "created_at": step.created_at,
                "rewards": json_or_none(step.rewards),
                "reward": step.reward,
                "labels": json_or_none(step.labels),
                "annotations": json_or_none(step.annotations),
            }
        )
    txn.many(_RESTATE_STEP, rows)


def add_rows(txn: Transaction, name: str, trajectory_id: str, rows: Sequence[dict[str, Any]]) -> int:
    """Insert rows of a table that are not there, and not of another trajectory's step; returns how many."""
    row = txn.one(FIND, {"id": trajectory_id})
    assert row is not None
    named = [values["target_id"] for values in rows if values.get("target") == "step"]
    there = known_steps(txn, named) if named else {}
    new = []
    for values in rows:
        step = there.get(values["target_id"]) if values.get("target") == "step" else None
        if step is not None and step.trajectory_id != trajectory_id:
            continue  # The step of this id is another one, and keeps what was said of it.
        if step is None and values.get("target") == "step":
            if txn.counter(counters.TOMBSTONES) and txn.one(_BURIED_STEP, {"id": values["target_id"]}) is not None:
                continue
            awaited = {"target": "step", "target_id": values["target_id"], "since": txn.now}
            txn.count(counters.AWAITED, len(txn.execute(_AWAIT, awaited)))
        keys = {key: values[key] for key in _KEYS[name]}
        if txn.one(_KNOWN_ROW[name], keys) is None:
            new.append(dict(values))
    if not new:
        return 0
    first = txn.next_pk(name, len(new))
    for number, values in enumerate(new):
        values["pk"] = first + number
        if name == "exchanges":
            values["trajectory"] = row["pk"]
            txn.count(counters.EXCHANGES_FAILED, int(values["status"] == "error"))
        elif name == "feedback":
            txn.count(counters.FEEDBACK + values["kind"])
    txn.many(_ADD[name], new)
    if name != "feedback":
        txn.count(
            {"exchanges": counters.EXCHANGES, "rewards": counters.REWARDS}.get(name, counters.ANNOTATIONS), len(new)
        )
    return len(new)


def finish(txn: Transaction, record: Trajectory, group: dict[str, Any] | None) -> None:
    """Set the trajectory to what it was, put it into its group, and offer it to consumers."""
    row = txn.one(FIND, {"id": record.trajectory_id})
    assert row is not None
    served = serves(record.readiness)
    values: dict[str, Any] = {
        **{name: getattr(record, name) for name in _SAME},
        # How it ended is no reason of its own: see rules.shown_reason.
        "excluded_reason": None if record.excluded_reason == record.status else record.excluded_reason,
        **policy_columns(record.policy),
        "task": None if record.task is None else stored_json(record.task).decode(),
        "metadata": json_or_none(record.metadata),
        "rewards": json_or_none(record.rewards),
        "labels": json_or_none(record.labels),
        "annotations": json_or_none(record.annotations),
        "user_id": record.user,
        "masked": int(record.masked),
        "ready_seq": txn.next_pk("ready_seq") if served else None,
    }
    txn.execute(_RESTATE, {"row": row["pk"], **values})
    txn.count(counters.TRAJECTORIES + row["status"], -1)
    txn.count(counters.TRAJECTORIES + record.status)
    txn.count(counters.READINESS + "excluded", -1)
    txn.count(counters.READINESS + record.readiness)
    txn.count(counters.CHANNEL_TRAJECTORIES + row["channel"], -1)
    txn.count(counters.CHANNEL_TRAJECTORIES + record.channel)
    if record.channel != row["channel"]:
        move_events(txn, record.trajectory_id, record.channel)
    if record.group_id is not None:
        _join(txn, record, group)
    if record.status != "open":
        add_event(
            txn, "trajectory.completed", record.trajectory_id, data={"status": record.status}, channel=record.channel
        )


def decide(txn: Transaction, trajectory_id: str, rows: Sequence[dict[str, Any]]) -> None:
    """Put the decisions of a finished trajectory beside it. People's stay; what a policy decided elsewhere is decided
    anew by the policy that is in force here, if any.
    """
    row = txn.one(FIND, {"id": trajectory_id})
    assert row is not None
    keys = {step["step_id"]: step["pk"] for step in txn.execute(_STEP_KEYS, {"row": row["pk"]})}
    new = []
    for values in rows:
        step_id = values.pop("step_id")
        if step_id is not None and step_id not in keys:
            continue  # It became a dead letter.
        target = row["pk"] if step_id is None else keys[step_id]
        new.append({**values, "pk": txn.next_pk("decisions"), "row_pk": target, "trajectory": row["pk"]})
    txn.many(_ADD_DECISION, new)
    if new or txn.counter(ACTIVE) > 0:
        redecide(txn, [row["pk"]])
        settle_touched(txn, [row["pk"]])


def _join(txn: Transaction, record: Trajectory, group: dict[str, Any] | None) -> None:
    group_id = record.group_id or ""
    if groups.find(txn, group_id) is None:
        planned = group or {
            "channel": record.channel,
            "size": record.group_size,
            "timeout_at": None,
            "failures": None,
            "state": "open",
            "closed_by": None,
            "created_at": record.created_at,
            "closed_at": None,
        }
        counted = {"members": 0, "ended": 0, "served": 0, "ready_seq": None}
        txn.execute(_ADD_GROUP, {**planned, "group_id": group_id, "pk": txn.next_pk("groups"), **counted})
        txn.count(counters.GROUPS + planned["state"])
    row = txn.one(FIND, {"id": record.trajectory_id})
    assert row is not None
    groups.count(txn, None, groups.member_from(row))
    there = groups.find(txn, group_id)
    if there is not None and serves(record.readiness) and is_offered(there):
        groups.offer(txn, group_id)


_COUNTED = {"exchanges": counters.EXCHANGES, "rewards": counters.REWARDS, "annotations": counters.ANNOTATIONS}
_KEYS = {
    "exchanges": ("exchange_id",),
    "rewards": ("target", "target_id", "name", "source"),
    "feedback": ("feedback_id",),
    "annotations": ("target", "target_id", "name"),
}
