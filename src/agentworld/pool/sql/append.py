"""Appending exchanges and steps inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np
from sqlalchemy import func, insert, select, update

from agentworld.errors import ConflictError, InvalidRequestError
from agentworld.forest import BLOCK_SIZE
from agentworld.pool import rules, schema
from agentworld.pool.bounds import check_exchange, encode, storable
from agentworld.pool.intake import ABORTED, Prepared, choices_of, escaped_record, prepare
from agentworld.pool.protocol import AppendResult
from agentworld.pool.sql import trajectories
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.forests import ForestWriter
from agentworld.pool.sql.packing import pack_logprobs, pack_mask
from agentworld.pool.sql.rows import (
    PROMPT_IDS,
    PROMPT_MESSAGES,
    RESPONSE_IDS,
    Call,
    json_or_none,
    policy_columns,
    policy_from,
)
from agentworld.pool.sql.signals import add_event, keep_reward
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Exchange, NewTrajectory, Reward, Step, check_id, digest

_s, _t, _e = schema.steps, schema.trajectories, schema.exchanges
_KNOWN = sql(select(_s.c.content, _s.c.step_index).where(_s.c.step_id == parameter("id")))
_COUNTED_LATER = ("sampled", "annotations")
_INSERT = sql(
    insert(_s).values({column.name: parameter(column.name) for column in _s.c if column.name not in _COUNTED_LATER})
)
_GROW = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values(
        step_count=_t.c.step_count + 1,
        prompt_tokens=_t.c.prompt_tokens + parameter("prompt"),
        response_tokens=_t.c.response_tokens + parameter("response"),
        last_step=func.coalesce(parameter("last"), _t.c.last_step),
        policy_model=parameter("policy_model"),
        policy_run=parameter("policy_run"),
        policy_version=parameter("policy_version"),
    )
)
_SUPERSEDED = sql(
    select(_s.c.pk, _s.c.excluded_reason).where(
        _s.c.step_id == parameter("id"), _s.c.trajectory == parameter("trajectory")
    )
)
_EXCLUDE = sql(update(_s).where(_s.c.pk == parameter("row")).values(excluded_reason=parameter("reason")))
_LAST_USABLE = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values(
        last_step=select(func.max(_s.c.pk))
        .where(_s.c.trajectory == parameter("row"), _s.c.excluded_reason.is_(None))
        .scalar_subquery()
    )
)
_DEAD = sql(
    insert(schema.dead_letters).values(
        {name: parameter(name) for name in ("pk", "step_id", "trajectory_id", "reason", "record", "at")}
    )
)
_KNOWN_EXCHANGE = sql(select(_e.c.content).where(_e.c.exchange_id == parameter("id")))
_INSERT_EXCHANGE = sql(insert(_e).values({column.name: parameter(column.name) for column in _e.c}))


class PreparedExchange:
    """An exchange that was checked before it waits for the writer."""

    def __init__(self, exchange: Exchange) -> None:
        check_id(exchange.exchange_id, "exchange_id")
        check_id(exchange.trajectory_id, "trajectory_id")
        self.exchange = exchange
        kept = msgspec.structs.replace(exchange, messages=[], tools=[], choices=[])
        self.kept = kept
        self.content = digest(check_exchange(kept))
        self.steps = prepare_all(choices_of(exchange))
        aborted = any(choice.finish_reason in ABORTED for choice in exchange.choices)
        self.status = "error" if exchange.error is not None else "aborted" if aborted else "ok"


Intake = Prepared | tuple[Step, str]


def prepare_all(steps: Sequence[Step]) -> list[Intake]:
    """Each step prepared, or with the reason why it is rejected."""
    taken: list[Intake] = []
    for step in steps:
        try:
            taken.append(prepare(step))
        except InvalidRequestError as error:
            taken.append((step, error.one_line()))
    return taken


class Appender:
    """Writes steps; used by the writing thread only."""

    def __init__(self) -> None:
        self._forests = ForestWriter()

    def append_exchange(self, txn: Transaction, prepared: PreparedExchange) -> list[AppendResult]:
        """The exchange's row and its choices."""
        exchange = prepared.exchange
        known = txn.one(_KNOWN_EXCHANGE, {"id": exchange.exchange_id})
        if known is not None and known[0] != prepared.content:
            raise ConflictError(f"exchange {exchange.exchange_id!r} is there with other content", path="exchange_id")
        if known is None:
            row = txn.one(trajectories.FIND, {"id": exchange.trajectory_id})
            if row is None:
                implied = NewTrajectory(group_id=exchange.group_id, channel=exchange.channel, agent=exchange.agent)
                row = trajectories.imply(txn, exchange.trajectory_id, implied)
            kept = msgspec.structs.replace(prepared.kept, created_at=exchange.created_at or txn.now)
            values = {
                "pk": txn.next_pk("exchanges"),
                "exchange_id": exchange.exchange_id,
                "content": prepared.content,
                "trajectory": row["pk"],
                "status": prepared.status,
                "record": encode(kept).decode(),
            }
            txn.execute(_INSERT_EXCHANGE, values)
            txn.count("exchanges")
            if exchange.error is not None:
                txn.count("exchanges.error")
                data = {"exchange_id": exchange.exchange_id}
                add_event(txn, "exchange.failed", exchange.trajectory_id, data=data)
        return self.append(txn, prepared.steps)

    def append(self, txn: Transaction, steps: Sequence[Intake]) -> list[AppendResult]:
        """Each step, or its rejection."""
        results = []
        for taken in steps:
            if not isinstance(taken, Prepared):
                results.append(_reject(txn, *taken))
                continue
            try:
                results.append(txn.run(partial(self._append, prepared=taken)))
            except InvalidRequestError as error:
                results.append(_reject(txn, taken.step, error.one_line()))
        return results

    def _append(self, txn: Transaction, prepared: Prepared) -> AppendResult:
        step = prepared.step
        row = txn.one(trajectories.FIND, {"id": step.trajectory_id})
        known = txn.one(_KNOWN, {"id": step.step_id})
        if known is not None:
            # The digest needs the forests; other content under a known id must leave nothing in them.
            if known["content"] == txn.probe(lambda probe: self._store_content(probe, prepared))[1]:
                return AppendResult(step.step_id, "duplicate", known["step_index"])
            reason = "other content is there under this id"
            return AppendResult(step.step_id, "conflict", known["step_index"], reason)
        if row is None:
            implied = NewTrajectory(group_id=step.group_id, channel=step.channel, agent=step.agent)
            row = trajectories.imply(txn, step.trajectory_id, implied)
        stored, content = self._store_content(txn, prepared)
        late = row["status"] != "open"
        excluded = rules.joined_reasons([*prepared.reasons, *(["late"] if late else [])])
        values = {
            **stored,
            **_columns(prepared),
            "content": content,
            "trajectory": row["pk"],
            "step_index": row["step_count"],
            "channel": rules.step_channel(step.channel, row["channel"]),
            "excluded_reason": excluded,
            "late": int(late),
            "created_at": step.created_at or txn.now,
        }
        pk = txn.next_pk("steps")
        txn.execute(_INSERT, {**values, "pk": pk})
        self._grow(txn, row, prepared, pk if excluded is None else None)
        for name, value in prepared.rewards.items():
            keep_reward(txn, "step", step.step_id, Reward(value=value, name=name, source="step"))
        if step.supersedes is not None:
            _supersede(txn, row["pk"], step.supersedes)
        txn.count("steps")
        if excluded is not None:
            txn.count("steps.excluded")
        outcome: Literal["late", "stored"] = "late" if late else "stored"
        add_event(txn, "step.appended", step.trajectory_id, step.step_id, {"outcome": outcome})
        return AppendResult(step.step_id, outcome, row["step_count"], excluded)

    def _store_content(self, txn: Transaction, prepared: Prepared) -> tuple[dict[str, Any], bytes]:
        """Put ids and messages into the forests; returns the columns that point at them, and the content's digest."""
        step = prepared.step
        mask, logprobs = pack_mask(prepared.mask), pack_logprobs(prepared.logprobs)
        arrays = [array for array in (prepared.prompt, prepared.response) if array is not None]
        columns: dict[str, Any] = {"block": None, "tail": None, "id_count": 0, "mask": mask, "logprobs": logprobs}
        parts = [prepared.rest, mask or b"", b"-" if logprobs is None else b"+" + logprobs]
        if arrays:
            ids = np.concatenate(arrays)
            tokens = self._forests.add_tokens(txn, step.trajectory_id, step.vocabulary, ids)
            columns.update(block=tokens.block, tail=tokens.tail, id_count=tokens.length)
            parts += [tokens.content, str(len(arrays[0])).encode()]
            txn.count("tokens_flat", tokens.length)
            txn.count("tokens_in_tails", tokens.length % BLOCK_SIZE)
        with storable():
            columns["tools"], tools = self._forests.add_tools(txn, step.tools)
            messages = self._forests.add_messages(
                txn, step.trajectory_id, tools, step.prompt_messages, step.response_message
            )
        columns.update(prompt_node=messages.prompt, reply_node=messages.reply)
        columns["present"] = (
            PROMPT_IDS * (prepared.prompt is not None)
            + RESPONSE_IDS * (prepared.response is not None)
            + PROMPT_MESSAGES * (step.prompt_messages is not None)
        )
        return columns, digest(*parts, messages.content, str(columns["present"]).encode())

    def _grow(self, txn: Transaction, row: Row, prepared: Prepared, last: int | None) -> None:
        grown = {
            "row": row["pk"],
            "prompt": prepared.prompt_length or 0,
            "response": prepared.response_length or 0,
            "last": last,
            **policy_columns(rules.oldest_policy(policy_from(row), prepared.step.policy)),
        }
        txn.execute(_GROW, grown)


def _columns(prepared: Prepared) -> dict[str, Any]:
    """The columns that hold a value of the step as it is."""
    step = prepared.step
    call = Call(step.sampling, step.usage, step.version_spans)
    plain = (
        "step_id exchange_id choice_index parent_step_id supersedes fork_reason agent model requested_model dialect "
        "token_source vocabulary finish_reason logprob_space latency_ms"
    )
    return {
        **{name: getattr(step, name) for name in plain.split()},
        **policy_columns(step.policy),
        "prompt_length": prepared.prompt_length,
        "response_length": prepared.response_length,
        "reward": prepared.rewards.get(rules.PRIMARY),
        "rewards": json_or_none(prepared.rewards),
        "labels": json_or_none(step.labels),
        "metadata": json_or_none(step.metadata),
        "call": json_or_none(call) if call != Call() else None,
    }


def _supersede(txn: Transaction, trajectory: int, step_id: str) -> None:
    row = txn.one(_SUPERSEDED, {"id": step_id, "trajectory": trajectory})
    if row is None:
        return  # The first call left no step, or it is another trajectory's, which is not ours to exclude.
    reasons = [row["excluded_reason"]] if row["excluded_reason"] else []
    txn.execute(_EXCLUDE, {"row": row["pk"], "reason": rules.joined_reasons([*reasons, "superseded"])})
    txn.execute(_LAST_USABLE, {"row": trajectory})
    if not reasons:
        txn.count("steps.excluded")


def _reject(txn: Transaction, step: Step, reason: str) -> AppendResult:
    step_id, trajectory_id = rules.printable(step.step_id), rules.printable(step.trajectory_id)
    named = {"step_id": step_id, "trajectory_id": trajectory_id, "reason": reason}
    txn.execute(_DEAD, {"pk": txn.next_pk("dead_letters"), **named, "record": escaped_record(step), "at": txn.now})
    txn.count("dead_letters")
    return AppendResult(step_id, "rejected", reason=reason)
