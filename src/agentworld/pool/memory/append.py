"""Appending exchanges and steps to the in-memory store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from agentworld.errors import ConflictError, GoneError, InvalidRequestError
from agentworld.forest import TokenArray, chain, exact_key, plan_tokens, vocabulary_root
from agentworld.pool import rules
from agentworld.pool.bounds import check_exchange, check_message, encode, storable
from agentworld.pool.call_marks import CallMark
from agentworld.pool.intake import Prepared, choices_of, prepare
from agentworld.pool.media import read_digest
from agentworld.pool.memory import groups
from agentworld.pool.memory.signals import apply_awaited, check_not_deleted
from agentworld.pool.memory.state import State, StoredStep, copied
from agentworld.pool.memory.trajectories import imply
from agentworld.pool.misplaced import conflict_of
from agentworld.pool.protocol import AppendResult, DeadLetter, Rejected
from agentworld.pool.rejections import kept_text, rejection
from agentworld.records import Exchange, NewTrajectory, Reward, Step, check_id, digest

_ARRAYS = ("prompt", "response", "mask", "logprobs")
_NO_ARRAYS = {"prompt_ids": None, "response_ids": None, "response_mask": None, "response_logprobs": None}


def append_exchange(state: State, exchange: Exchange) -> list[AppendResult]:
    """The exchange and its choices."""
    check_id(exchange.exchange_id, "exchange_id")
    check_id(exchange.trajectory_id, "trajectory_id")
    kept = msgspec.structs.replace(
        exchange, messages=[], tools=[], choices=[], marks=[], only_group=None, only_channel=None
    )
    marks = [(read_digest(mark.digest), mark.said) for mark in exchange.marks]
    content = digest(check_exchange(kept))
    there = state.exchanges.get(exchange.exchange_id)
    if there is not None and there[0] != content:
        raise ConflictError(f"exchange {exchange.exchange_id!r} is there with other content", path="exchange_id")
    if there is None:
        made = state.trajectories.get(exchange.trajectory_id)
        misplaced = None if made is None else conflict_of(exchange, made.group_id, made.channel)
        if misplaced is not None:
            return [_reject(state, rejection(step, misplaced.one_line())) for step in choices_of(exchange)]
        kept.created_at = kept.created_at or state.clock()
        if exchange.trajectory_id not in state.trajectories:
            implied = NewTrajectory(group_id=exchange.group_id, channel=exchange.channel, agent=exchange.agent)
            imply(state, exchange.trajectory_id, implied)
        state.exchanges[exchange.exchange_id] = (content, kept)
        if exchange.error is not None:
            data = {"exchange_id": exchange.exchange_id}
            state.add_event("exchange.failed", exchange.trajectory_id, data=data)
        if state.trajectories[exchange.trajectory_id].status == "open":
            for mark, said in marks:
                place = mark, exchange.trajectory_id
                state.marks[place] = CallMark(exchange.trajectory_id, said, state.clock())
    return append_steps(state, choices_of(exchange))


def append_steps(state: State, steps: Sequence[Step | Rejected]) -> list[AppendResult]:
    """Each step, or its rejection."""
    results = []
    for step in steps:
        if isinstance(step, Rejected):
            results.append(_reject(state, step))
            continue
        try:
            results.append(append_prepared(state, prepare(step)))
        except GoneError as error:
            results.append(_reject(state, rejection(step, error.one_line()), gone=True))
        except (InvalidRequestError, ConflictError) as error:
            results.append(_reject(state, rejection(step, error.one_line())))
    return results


def append_prepared(state: State, prepared: Prepared) -> AppendResult:
    """One step that was checked; GoneError where it was deleted, ConflictError where it cannot be of its group."""
    step = prepared.step
    with storable():
        for message in (*(step.prompt_messages or ()), *((step.response_message,) if step.response_message else ())):
            check_message(message, encode(message))
        stored = copied(msgspec.structs.replace(step, **_NO_ARRAYS))
    content = digest(
        prepared.rest,
        encode([step.prompt_messages, step.response_message, step.tools]),
        *(b"-" if array is None else array.tobytes() for array in (getattr(prepared, name) for name in _ARRAYS)),
    )
    there = state.steps.get(step.step_id)
    if there is not None:
        index = there.step.step_index
        if there.content == content:
            return AppendResult(step.step_id, "duplicate", index)
        return AppendResult(step.step_id, "conflict", index, "other content is there under this id")
    check_not_deleted(state, "step", step.step_id, "step_id")
    trajectory = state.trajectories.get(step.trajectory_id)
    if trajectory is None:
        implied = NewTrajectory(group_id=step.group_id, channel=step.channel, agent=step.agent)
        trajectory = imply(state, step.trajectory_id, implied)
    late = trajectory.status != "open"
    siblings = state.steps_of[trajectory.trajectory_id]
    stored.step_index = len(siblings)
    stored.late = late
    stored.channel = rules.step_channel(step.channel, trajectory.channel)
    stored.excluded_reason = rules.joined_reasons([*prepared.reasons, *(["late"] if late else [])])
    stored.prompt_length, stored.response_length = prepared.prompt_length, prepared.response_length
    stored.rewards, stored.reward = prepared.rewards, prepared.rewards.get(rules.PRIMARY)
    stored.created_at = step.created_at or state.clock()
    # Arrays that are the caller's are copied.
    kept: dict[str, Any] = {
        name: None if (array := getattr(prepared, name)) is None else array.copy() for name in _ARRAYS
    }
    light = msgspec.structs.replace(prepared, step=stored, rest=b"", **kept)
    state.last_step += 1
    state.steps[step.step_id] = StoredStep(stored, light, content, state.last_step)
    siblings.append(step.step_id)
    for name, value in prepared.rewards.items():
        state.keep_reward("step", step.step_id, Reward(value=value, step_id=step.step_id, name=name, source="step"))
    trajectory.step_count += 1
    trajectory.prompt_tokens += prepared.prompt_length or 0
    trajectory.response_tokens += prepared.response_length or 0
    trajectory.policy = rules.oldest_policy(trajectory.policy, step.policy)
    if stored.excluded_reason is None and stored.channel == trajectory.channel:
        trajectory.sampled_tokens += prepared.sampled
    if step.supersedes is not None:
        _supersede(state, step)
    count_content(state, prepared)
    outcome: Literal["late", "stored"] = "late" if late else "stored"
    state.add_event("step.appended", trajectory.trajectory_id, step.step_id, {"outcome": outcome})
    apply_awaited(state, "step", [step.step_id])
    if trajectory.status != "open" and state.curations:
        groups.settle(state, trajectory)
    return AppendResult(step.step_id, outcome, stored.step_index, stored.excluded_reason)


def _supersede(state: State, step: Step) -> None:
    first = state.steps.get(step.supersedes or "")
    if first is None or first.step.trajectory_id != step.trajectory_id:
        return  # The first call left no step, or it is another trajectory's, which is not ours to exclude.
    reasons = [first.step.excluded_reason] if first.step.excluded_reason else []
    first.step.excluded_reason = rules.joined_reasons([*reasons, "superseded"])
    trajectory = state.trajectories[step.trajectory_id]
    if not reasons and first.step.channel == trajectory.channel:
        trajectory.sampled_tokens -= first.prepared.sampled


def _reject(state: State, rejected: Rejected, gone: bool = False) -> AppendResult:
    """The dead letter and the result; nothing of what was deleted on request is kept."""
    step_id, trajectory_id = rules.printable(rejected.step_id), rules.printable(rejected.trajectory_id)
    gone = gone or ("step", step_id) in state.tombstones or ("trajectory", trajectory_id) in state.tombstones
    reason = kept_text(rejected.reason)
    state.last_dead += 1
    letter = DeadLetter(
        state.last_dead, step_id, trajectory_id, reason, "" if gone else kept_text(rejected.record), state.clock()
    )
    state.dead.append(letter)
    return AppendResult(step_id, "rejected", reason=reason)


def count_content(state: State, prepared: Prepared) -> None:
    """Keep the counters that the forests would have."""
    step = prepared.step
    arrays = [array for array in (prepared.prompt, prepared.response) if array is not None]
    if arrays:
        joined: TokenArray = np.concatenate(arrays)
        path = plan_tokens(vocabulary_root(step.vocabulary), joined).path
        state.blocks.update(path.digests)
        state.tokens_in_tails += len(path.tail)
        state.tokens_flat += path.length
    root = digest(b"null" if step.tools is None else encode(step.tools))
    if step.tools is not None:
        state.tool_sets.add(root)
    messages = [*(step.prompt_messages or []), *([step.response_message] if step.response_message else [])]
    state.nodes.update(chain(root, messages, exact_key))
