"""Rows to records and back, column by column."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Select, and_, case, select

from agentworld.pool import rules, schema
from agentworld.pool.exact_text import read_json, stored_json
from agentworld.pool.sql.connections import Row
from agentworld.records import Policy, Sampling, Step, Trajectory, Usage, VersionSpan

CREATION_COLUMNS = tuple("user_id" if name == "user" else name for name in rules.CREATION_FIELDS)
_creation_fields = operator.attrgetter(*rules.CREATION_FIELDS)
_TASK, _METADATA = (rules.CREATION_FIELDS.index(name) for name in ("task", "metadata"))
# Bits of `steps.present`: what the step has; that its usage is its two lengths; that its sampling is its trajectory's.
PROMPT_IDS, RESPONSE_IDS, PROMPT_MESSAGES, USAGE_IS_LENGTHS, SAMPLING_OF_TRAJECTORY = 1, 2, 4, 8, 16

STEP_APPENDED = "step.appended"

steps, trajectories = schema.steps, schema.trajectories

step_readiness: ColumnElement[str] = case(
    (steps.c.excluded_reason.is_not(None), "excluded"), else_=trajectories.c.readiness
)

_TRAJECTORY_OF_STEP = [
    trajectories.c.trajectory_id.label("trajectory_id"),
    trajectories.c.group_id.label("group_id"),
    step_readiness.label("readiness"),
    and_(trajectories.c.last_step == steps.c.pk).label("is_last"),
    trajectories.c.sampling.label("sampling_of_trajectory"),
]


class StepRow(NamedTuple):
    """A row of select_steps, in the order of its columns: among so many, the engines find one by its name slowly."""

    pk: int
    trajectory: int
    step_id: str
    trajectory_id: str
    exchange_id: str | None
    choice_index: int
    group_id: str | None
    channel: str
    step_index: int | None
    parent_step_id: str | None
    supersedes: str | None
    fork_reason: Any
    agent: str | None
    model: str | None
    requested_model: str | None
    policy_model: str | None
    policy_run: str
    policy_version: int
    dialect: str | None
    token_source: Any
    vocabulary: str | None
    logprob_space: Any
    prompt_length: int
    response_length: int
    present: int
    block: int | None
    tail: bytes
    id_count: int
    mask: bytes | None
    logprobs: bytes | None
    tools: int | None
    prompt_node: int | None
    reply_node: int | None
    call: str | None
    sampling_of_trajectory: str
    finish_reason: str | None
    rewards: str | None
    reward: float | None
    labels: str | None
    annotations: str | None
    readiness: Any
    excluded_reason: str | None
    late: int
    is_last: int | None
    created_at: float
    latency_ms: float | None
    metadata: str | None
    content: bytes
    sampled: int


class Call(msgspec.Struct, omit_defaults=True):
    """What a step says of its call beside its columns and the bits of `present`."""

    sampling: Sampling | None = None
    usage: Usage | None = None
    version_spans: tuple[VersionSpan, ...] = ()


_NO_CALL = Call()


def select_steps() -> Select[Any]:
    """Every column that a Step is read from: those of StepRow."""
    columns: dict[str, ColumnElement[Any]] = {column.name: column for column in steps.c}
    columns |= {column.name: column for column in _TRAJECTORY_OF_STEP}
    return select(*(columns[name] for name in StepRow._fields)).join_from(
        steps, trajectories, steps.c.trajectory == trajectories.c.pk
    )


def select_trajectories() -> Select[Any]:
    """Every column that a Trajectory is read from."""
    return select(*trajectories.c)


def json_or_none(value: Any) -> str | None:
    """JSON text as stores hold it; None for what is empty, which reads back as empty."""
    return stored_json(value).decode() if value else None


def from_json(text: str | None, empty: Any) -> Any:
    """The value of a JSON column."""
    return empty if text is None else read_json(text, Any)


def event_data(kind: str, text: str | None) -> dict[str, Any]:
    """The data of an event; that of a step which was stored as usual, the most frequent one, takes no room."""
    if text is None:
        return {"outcome": "stored"} if kind == STEP_APPENDED else {}
    return read_json(text, dict[str, Any])


def policy_columns(policy: Policy | None) -> dict[str, Any]:
    """The three columns of a policy."""
    return {
        "policy_model": policy.model if policy else None,
        "policy_run": policy.run if policy else None,
        "policy_version": policy.version if policy else None,
    }


def policy_from(row: Row) -> Policy | None:
    """The policy of a row."""
    if row["policy_model"] is None:
        return None
    return Policy(row["policy_model"], row["policy_run"], row["policy_version"])


def trajectory_from(row: Row) -> Trajectory:
    """A row of select_trajectories as a record."""
    return Trajectory(
        trajectory_id=row["trajectory_id"],
        group_id=row["group_id"],
        group_size=row["group_size"],
        rollout_index=row["rollout_index"],
        attempt=row["attempt"],
        task=from_json(row["task"], None),
        agent=row["agent"],
        channel=row["channel"],
        metadata=from_json(row["metadata"], {}),
        user=row["user_id"],
        priority=row["priority"],
        status=row["status"],
        rewards=from_json(row["rewards"], {}),
        reward=row["reward"],
        labels=from_json(row["labels"], {}),
        annotations=from_json(row["annotations"], []),
        masked=bool(row["masked"]),
        readiness=row["readiness"],
        excluded_reason=rules.shown_reason(row["status"], row["readiness"], row["excluded_reason"]),
        step_count=row["step_count"],
        prompt_tokens=row["prompt_tokens"],
        response_tokens=row["response_tokens"],
        sampled_tokens=row["sampled_tokens"],
        policy=policy_from(row),
        created_at=row["created_at"],
        completed_at=row["completed_at"],
    )


def creation_columns(record: Any) -> dict[str, Any]:
    """The columns that a NewTrajectory sets: CREATION_COLUMNS."""
    return dict(zip(CREATION_COLUMNS, creation_values(record), strict=True))


def creation_values(record: Any) -> list[Any]:
    """The values of these, in order."""
    values = list(_creation_fields(record))
    # An empty task is not the absence of one.
    values[_TASK] = None if record.task is None else stored_json(record.task).decode()
    values[_METADATA] = json_or_none(record.metadata)
    return values


def step_from(row: StepRow) -> Step:
    """A row of select_steps as a record without ids, messages and log-probabilities."""
    call = _NO_CALL if row.call is None else read_json(row.call, Call)
    sampling, usage = call.sampling, call.usage
    if row.present & USAGE_IS_LENGTHS:
        usage = Usage(row.prompt_length, row.response_length)
    if row.present & SAMPLING_OF_TRAJECTORY:
        sampling = read_json(row.sampling_of_trajectory, Sampling)
    return Step(
        step_id=row.step_id,
        trajectory_id=row.trajectory_id,
        exchange_id=row.exchange_id,
        choice_index=row.choice_index,
        group_id=row.group_id,
        channel=row.channel,
        step_index=row.step_index,
        parent_step_id=row.parent_step_id,
        supersedes=row.supersedes,
        fork_reason=row.fork_reason,
        agent=row.agent,
        model=row.model,
        requested_model=row.requested_model,
        policy=None if row.policy_model is None else Policy(row.policy_model, row.policy_run, row.policy_version),
        version_spans=call.version_spans,
        dialect=row.dialect,
        token_source=row.token_source,
        vocabulary=row.vocabulary,
        logprob_space=row.logprob_space,
        prompt_length=row.prompt_length,
        response_length=row.response_length,
        sampling=sampling,
        finish_reason=row.finish_reason,
        usage=usage,
        rewards=from_json(row.rewards, {}),
        reward=row.reward,
        labels=from_json(row.labels, {}),
        annotations=from_json(row.annotations, []),
        readiness=row.readiness,
        excluded_reason=row.excluded_reason,
        late=bool(row.late),
        is_last=bool(row.is_last),
        created_at=row.created_at,
        latency_ms=row.latency_ms,
        metadata=from_json(row.metadata, {}),
    )
