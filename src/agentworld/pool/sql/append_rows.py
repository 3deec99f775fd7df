"""The statements of appending, and steps as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import exists, insert, literal, or_, select, union_all

from agentworld.errors import GoneError
from agentworld.pool import rules, schema
from agentworld.pool.exact_text import stored_json
from agentworld.pool.intake import Prepared
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.rows import (
    PROMPT_IDS,
    PROMPT_MESSAGES,
    RESPONSE_IDS,
    SAMPLING_OF_TRAJECTORY,
    USAGE_IS_LENGTHS,
    Call,
    json_or_none,
)
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
from agentworld.pool.sql.step_digest import content_digest as digest_of_all
from agentworld.pool.sql.tally import Tally
from agentworld.pool.sql.traces import MessageTrace, TokenTrace
from agentworld.pool.sql.transaction import Transaction

_s, _x, _t, _stones = schema.steps, schema.exchanges, schema.trajectories, schema.tombstones
_KNOWN_STEPS = sql(select(_s.c.step_id, _s.c.content, _s.c.step_index).where(among_texts(_s.c.step_id, "ids")))
_KNOWN_EXCHANGES = sql(select(_x.c.exchange_id, _x.c.content).where(among_texts(_x.c.exchange_id, "ids")))
_KNOWN = sql(
    union_all(
        select(literal(0).label("kind"), _s.c.step_id, _s.c.content, _s.c.step_index).where(
            among_texts(_s.c.step_id, "steps")
        ),
        select(literal(1), _x.c.exchange_id, _x.c.content, literal(0)).where(
            among_texts(_x.c.exchange_id, "exchanges")
        ),
    )
)
_IS_ANY_THERE = sql(
    select(literal(1)).where(
        or_(
            exists().where(_t.c.trajectory_id == parameter("trajectory")),
            exists().where(_s.c.step_id == parameter("step")),
            exists().where(_x.c.exchange_id == parameter("exchange")),
        )
    )
)
_DELETED = sql(
    select(_stones.c.target_id, _stones.c.reason).where(
        _stones.c.kind == parameter("kind"), among_texts(_stones.c.target_id, "ids")
    )
)


def _insert(table: Any, order: Sequence[str] | None = None) -> Statement:
    return sql(insert(table).values({column.name: parameter(column.name) for column in table.c}), order)


# What fewer steps have stands later. A batch is inserted without the columns that none of its steps has, each of which
# costs as much as another.
_SPOKEN = ("prompt_node", "reply_node")
_OFTEN = ("tools", "parent_step_id", "agent")
_SELDOM = ("supersedes", "fork_reason", "mask", "reward", "rewards", "labels", "call", "excluded_reason")
_OF_ALL = [one.name for one in _s.c if one.name not in (*_SPOKEN, *_OFTEN, *_SELDOM, "annotations")]
STEP_COLUMNS = [*_OF_ALL, *_SPOKEN, *_OFTEN, *_SELDOM]
# Where the row of a step holds what is known only once the forests have numbered and packed it.
STEP_ID = STEP_COLUMNS.index("step_id")
BLOCK, TAIL, ID_COUNT = (STEP_COLUMNS.index(name) for name in ("block", "tail", "id_count"))
LOGPROBS, TOOLS = STEP_COLUMNS.index("logprobs"), STEP_COLUMNS.index("tools")
PROMPT_NODE, REPLY_NODE = STEP_COLUMNS.index("prompt_node"), STEP_COLUMNS.index("reply_node")
REWARD, REWARDS, LABELS = (STEP_COLUMNS.index(name) for name in ("reward", "rewards", "labels"))


def _insert_steps(width: int) -> Statement:
    names = STEP_COLUMNS[:width]
    return sql(insert(_s).values({name: parameter(name) for name in names}), names)


_NARROW = len(_OF_ALL)
_WIDER = _NARROW + len(_SPOKEN)
_WIDE = _WIDER + len(_OFTEN)
# Each with where its last columns begin, and what a row without them has there; the widest first.
_INSERTS = [
    (_insert_steps(begin + width), begin, begin + width, [None] * width)
    for begin, width in ((_WIDE, len(_SELDOM)), (_WIDER, len(_OFTEN)), (_NARROW, len(_SPOKEN)))
]
_INSERT_NARROW, INSERT_STEP = _insert_steps(_NARROW), _INSERTS[0][0]
_NOTHING = [None] * (len(STEP_COLUMNS) - _NARROW)
INSERT_EXCHANGE = _insert(_x, ("pk", "exchange_id", "content", "trajectory", "status", "record"))
INSERT_EVENT = _insert(schema.events)
INSERT_DEAD = _insert(schema.dead_letters)
STATEMENTS = (
    _KNOWN_STEPS,
    _KNOWN_EXCHANGES,
    _KNOWN,
    _IS_ANY_THERE,
    _INSERT_NARROW,
    *(insertion for insertion, *_ in _INSERTS),
    INSERT_EXCHANGE,
    INSERT_EVENT,
)


def known_steps(txn: Transaction, step_ids: Iterable[str]) -> dict[str, tuple[bytes, int]]:
    """Content's digest and index of the steps that are there."""
    found = txn.execute(_KNOWN_STEPS, {"ids": json_list(list(step_ids))})
    return {row["step_id"]: (bytes(row["content"]), row["step_index"]) for row in found}


def known_exchanges(txn: Transaction, exchange_ids: Iterable[str]) -> dict[str, bytes]:
    """Content's digest of the exchanges that are there."""
    found = txn.execute(_KNOWN_EXCHANGES, {"ids": json_list(list(exchange_ids))})
    return {row["exchange_id"]: bytes(row["content"]) for row in found}


def known_calls(
    txn: Transaction, step_ids: Iterable[str], exchange_ids: Iterable[str]
) -> tuple[dict[str, tuple[bytes, int]], dict[str, bytes]]:
    """`known_steps` and `known_exchanges`."""
    steps: dict[str, tuple[bytes, int]] = {}
    exchanges: dict[str, bytes] = {}
    asked = {"steps": json_list(list(step_ids)), "exchanges": json_list(list(exchange_ids))}
    for row in txn.execute(_KNOWN, asked):
        if row["kind"]:
            exchanges[row["step_id"]] = bytes(row["content"])
        else:
            steps[row["step_id"]] = bytes(row["content"]), row["step_index"]
    return steps, exchanges


def is_any_there(txn: Transaction, trajectory_id: str, step_id: str, exchange_id: str) -> bool:
    """Whether there is a trajectory, a step or an exchange of these ids; nothing has an empty one."""
    asked = {"trajectory": trajectory_id, "step": step_id, "exchange": exchange_id}
    return bool(txn.execute(_IS_ANY_THERE, asked))


def deleted_steps(txn: Transaction, step_ids: Iterable[str]) -> dict[str, str]:
    """Why steps were deleted on request."""
    found = txn.execute(_DELETED, {"kind": "step", "ids": json_list(list(step_ids))})
    return {row["target_id"]: row["reason"] or "" for row in found}


def deleted_trajectories(txn: Transaction, ids: Iterable[str]) -> set[str]:
    """Which of these trajectories were deleted on request."""
    found = txn.execute(_DELETED, {"kind": "trajectory", "ids": json_list(list(ids))})
    return {row["target_id"] for row in found}


def was_deleted(step_id: str, reason: str) -> GoneError:
    """The error of a step that comes after its deletion."""
    why = f" ({reason})" if reason else ""
    return GoneError(f"step {step_id!r} was deleted{why}", path="step_id", hint="Use a new id")


def insert_steps(txn: Transaction, rows: Sequence[Sequence[Any]]) -> None:
    """Insert the rows that `step_row` made."""
    for row in rows:
        if row[_NARROW:] != _NOTHING:
            break
    else:
        txn.many_in_order(_INSERT_NARROW, [row[:_NARROW] for row in rows])
        return
    for insertion, begin, end, nothing in _INSERTS:
        for row in rows:
            if row[begin:end] != nothing:
                txn.many_in_order(insertion, [row[:end] for row in rows])
                return


def present_bits(prepared: Prepared) -> int:
    """Which of prompt ids, reply ids and prompt messages a step has."""
    return (
        PROMPT_IDS * (prepared.prompt is not None)
        + RESPONSE_IDS * (prepared.response is not None)
        + PROMPT_MESSAGES * (prepared.step.prompt_messages is not None)
    )


def step_row(
    prepared: Prepared,
    pk: int,
    content: bytes,
    tally: Tally,
    channel: str,
    call: str | None,
    present: int,
    mask: bytes | None,
    logprobs: bytes | None,
    excluded: str | None,
    late: bool,
    now: float,
) -> list[Any]:
    """The values of INSERT_STEP in order; those of contents, which are numbered later, are as of a step without."""
    step, rewards = prepared.step, prepared.rewards
    policy = step.policy
    return [
        pk,
        step.step_id,
        content,
        tally.pk,
        step.exchange_id,
        step.choice_index,
        channel,
        tally.step_count,
        step.model,
        step.requested_model,
        None if policy is None else policy.model,
        None if policy is None else policy.run,
        None if policy is None else policy.version,
        step.dialect,
        step.token_source,
        step.vocabulary,
        step.finish_reason,
        prepared.prompt_length,
        prepared.response_length,
        present,
        None,  # block
        None,  # tail
        0,  # id_count
        logprobs,
        step.logprob_space,
        json_or_none(step.metadata) if step.metadata else None,
        int(late),
        step.created_at or now,
        step.latency_ms,
        prepared.sampled,
        # What steps with messages have.
        None,  # prompt_node
        None,  # reply_node
        # What many have.
        None,  # tools
        step.parent_step_id,
        step.agent,
        # What few have.
        step.supersedes,
        step.fork_reason,
        mask,
        rewards.get(rules.PRIMARY),
        json_or_none(rewards) if rewards else None,
        json_or_none(step.labels) if step.labels else None,
        call,
        excluded,
    ]


def call_columns(prepared: Prepared, present: int, tally: Tally) -> tuple[str | None, int]:
    """The columns `call` and `present`, which say how the step was sampled; what its trajectory or its lengths say is
    not said again.
    """
    step = prepared.step
    sampling, usage = step.sampling, step.usage
    if sampling is not None and (sampling is tally.said or tally.is_sampling(sampling)):
        sampling, present = None, present | SAMPLING_OF_TRAJECTORY
    if (
        usage is not None
        and usage.prompt_tokens == prepared.prompt_length
        and usage.completion_tokens == prepared.response_length
    ):
        usage, present = None, present | USAGE_IS_LENGTHS
    call = None
    if sampling is not None or usage is not None or step.version_spans:
        call = stored_json(Call(sampling, usage, step.version_spans)).decode()
    return call, present


def content_digest(
    prepared: Prepared,
    tokens: TokenTrace | None,
    messages: MessageTrace,
    mask: bytes | None,
    logprobs: bytes | None,
    present: int,
) -> bytes:
    """The digest of all that the caller said."""
    sequence = None
    if tokens is not None:
        first = prepared.response if prepared.prompt is None else prepared.prompt
        sequence = tokens.content, 0 if first is None else len(first)
    return digest_of_all(prepared.rest, mask, logprobs, sequence, messages.content, present)
