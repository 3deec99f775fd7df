"""The in-memory store: plain dictionaries under one lock, for tests and short scripts; it ends with the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from agentworld.errors import AgentWorldError, ConflictError, InvalidRequestError, NotFoundError, PoolError
from agentworld.forest import BLOCK_SIZE, TokenArray, chain, exact_key, plan_tokens, vocabulary_root
from agentworld.pool import rules
from agentworld.pool.base import Store, check_limit, cursor_for, read_cursor
from agentworld.pool.intake import (
    INCLUDABLE,
    Prepared,
    check_include,
    choices_of,
    encode,
    escaped_record,
    prepare,
    restore_arrays,
)
from agentworld.pool.lease_rules import requirements, wanted_readiness
from agentworld.pool.memory_leases import Leases
from agentworld.pool.protocol import AppendResult, DeadLetter, GatewayState, Page, PoolStats
from agentworld.pool.values import step_value, trajectory_value
from agentworld.query import Expression, evaluate, parse
from agentworld.records import (
    Batch,
    BatchItem,
    BatchSpec,
    BatchTrajectory,
    Event,
    Exchange,
    NewTrajectory,
    Policy,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
    check_id,
    digest,
    new_id,
)

R = TypeVar("R")


class StoredStep(NamedTuple):
    """A step without its arrays, the arrays, and the digest of what the caller said."""

    step: Step
    prepared: Prepared
    content: bytes
    ordinal: int


class MemoryPool(Store):
    """A pool in this process's memory. `clock` gives seconds since the epoch."""

    def __init__(self, url: str = "memory://", *, clock: Callable[[], float] = time.time) -> None:
        self.url = url
        self._clock = clock
        self._lock = threading.RLock()
        self._closed = False
        self._trajectories: dict[str, Trajectory] = {}
        self._ordinals: dict[str, int] = {}
        self._declared: set[str] = set()
        self._steps: dict[str, StoredStep] = {}
        self._steps_of: dict[str, list[str]] = {}
        self._exchanges: dict[str, tuple[bytes, Exchange]] = {}
        self._rewards: dict[tuple[str, str, str], float] = {}
        self._events: list[Event] = []
        self._dead: list[DeadLetter] = []
        self._policies: dict[str, Policy] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._paused = False
        self._blocks: set[bytes] = set()
        self._nodes: set[bytes] = set()
        self._tails = 0
        self._flat = 0
        self._leases = Leases(self._clock, self._event)

    # --- trajectories -----------------------------------------------------------------------------------------
    def create_trajectory(self, new: NewTrajectory) -> Trajectory:
        """See Pool."""
        trajectory_id = check_id(new.trajectory_id or new_id("trj"), "trajectory_id")
        if new.group_id is not None:
            check_id(new.group_id, "group_id")
        encode(new)
        with self._open():
            there = self._trajectories.get(trajectory_id)
            if there is None:
                there = self._add_trajectory(new, trajectory_id)
            elif trajectory_id in self._declared:
                rules.check_same_creation(new, there)
            else:
                for name in rules.CREATION_FIELDS:
                    setattr(there, name, getattr(_copy(new), name))
            self._declared.add(trajectory_id)
            return _copy(there)

    def complete_trajectory(
        self, trajectory_id: str, status: TerminalStatus, reward: float | None = None
    ) -> Trajectory:
        """See Pool."""
        with self._open():
            there = self._trajectory(trajectory_id)
            signal = (
                Reward(value=reward, trajectory_id=trajectory_id, source="complete") if reward is not None else None
            )
            if signal is not None:
                rules.check_reward(signal, "reward")
            if rules.check_completion(there, status):
                there.status = status
                there.completed_at = self._clock()
                self._refresh(there)
                self._event("trajectory.completed", trajectory_id, data={"status": status})
            if signal is not None:
                self._set_reward(signal)
            return _copy(there)

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool."""
        with self._open():
            return _copy(self._trajectory(trajectory_id))

    def list_trajectories(
        self,
        *,
        where: str | None = None,
        trajectory_id: str | None = None,
        group_id: str | None = None,
        channel: str | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Trajectory]:
        """See Pool."""
        expression = parse(where, "trajectories") if where is not None else None
        with self._open():
            rows = [
                (self._ordinals[found.trajectory_id], found)
                for found in self._trajectories.values()
                if trajectory_id in (None, found.trajectory_id)
                and group_id in (None, found.group_id)
                and channel in (None, found.channel)
                and (expression is None or self._trajectory_matches(expression, found))
            ]
            page = _page(rows, order, cursor, limit)
            return Page([_copy(found) for found in page.items], page.next_cursor)

    # --- steps ------------------------------------------------------------------------------------------------
    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        """See Pool."""
        return _done(lambda: self._append_exchange(exchange))

    def submit_steps(self, steps: Sequence[Step]) -> Future[list[AppendResult]]:
        """See Pool."""
        return _done(lambda: self._append(steps))

    def _append_exchange(self, exchange: Exchange) -> list[AppendResult]:
        check_id(exchange.exchange_id, "exchange_id")
        check_id(exchange.trajectory_id, "trajectory_id")
        kept = msgspec.structs.replace(exchange, messages=[], tools=[], choices=[])
        content = digest(encode(kept))
        with self._open():
            there = self._exchanges.get(exchange.exchange_id)
            if there is not None and there[0] != content:
                raise ConflictError(f"exchange {exchange.exchange_id!r} is there with other content")
            if there is None:
                kept.created_at = kept.created_at or self._clock()
                self._exchanges[exchange.exchange_id] = (content, kept)
                if exchange.trajectory_id not in self._trajectories:
                    self._add_trajectory(
                        NewTrajectory(group_id=exchange.group_id, channel=exchange.channel, agent=exchange.agent),
                        exchange.trajectory_id,
                    )
                if exchange.error is not None:
                    self._event("exchange.failed", exchange.trajectory_id, data={"exchange_id": exchange.exchange_id})
            return self._append(choices_of(exchange))

    def _append(self, steps: Sequence[Step]) -> list[AppendResult]:
        results = []
        with self._open():
            for step in steps:
                try:
                    results.append(self._append_one(step))
                except InvalidRequestError as error:
                    reason = error.one_line()
                    self._dead.append(
                        DeadLetter(
                            len(self._dead) + 1,
                            rules.printable(step.step_id),
                            rules.printable(step.trajectory_id),
                            reason,
                            escaped_record(step),
                            self._clock(),
                        )
                    )
                    results.append(AppendResult(rules.printable(step.step_id), "rejected", reason=reason))
        return results

    def _append_one(self, sent: Step) -> AppendResult:
        prepared = prepare(sent)
        step = prepared.step
        content = digest(
            prepared.rest,
            encode([step.prompt_messages, step.response_message, step.tools]),
            *(b"-" if array is None else array.tobytes() for array in prepared[1:5]),
        )
        there = self._steps.get(step.step_id)
        if there is not None:
            index = there.step.step_index
            if there.content == content:
                return AppendResult(step.step_id, "duplicate", index)
            return AppendResult(step.step_id, "conflict", index, "other content is there under this id")
        trajectory = self._trajectories.get(step.trajectory_id)
        if trajectory is None:
            trajectory = self._add_trajectory(
                NewTrajectory(group_id=step.group_id, channel=step.channel, agent=step.agent), step.trajectory_id
            )
        late = trajectory.status != "open"
        siblings = self._steps_of[trajectory.trajectory_id]
        stored = _copy(msgspec.structs.replace(step, **_NO_ARRAYS))
        stored.step_index = len(siblings)
        stored.late = late
        stored.group_id = trajectory.group_id
        stored.channel = rules.step_channel(step.channel, trajectory.channel)
        stored.excluded_reason = rules.joined_reasons([*prepared.reasons, *(["late"] if late else [])])
        stored.prompt_length, stored.response_length = prepared.prompt_length, prepared.response_length
        stored.rewards, stored.reward = prepared.rewards, prepared.rewards.get(rules.PRIMARY)
        stored.created_at = step.created_at or self._clock()
        light = prepared._replace(step=stored, rest=b"")
        self._steps[step.step_id] = StoredStep(stored, light, content, len(self._steps) + 1)
        siblings.append(step.step_id)
        for name, value in prepared.rewards.items():
            self._rewards[step.step_id, name, "step"] = value
        trajectory.step_count += 1
        trajectory.prompt_tokens += prepared.prompt_length or 0
        trajectory.response_tokens += prepared.response_length or 0
        trajectory.policy = rules.oldest_policy(trajectory.policy, step.policy)
        superseded = self._steps.get(step.supersedes or "")
        if superseded is not None and superseded.step.trajectory_id == step.trajectory_id:
            reasons = [superseded.step.excluded_reason] if superseded.step.excluded_reason else []
            superseded.step.excluded_reason = rules.joined_reasons([*reasons, "superseded"])
        self._count(prepared)
        outcome: Literal["late", "stored"] = "late" if late else "stored"
        self._event("step.appended", trajectory.trajectory_id, step.step_id, {"outcome": outcome})
        return AppendResult(step.step_id, outcome, stored.step_index, stored.excluded_reason)

    def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """See Pool."""
        check_include(include)
        with self._open():
            found = self._steps.get(step_id)
            if found is None:
                raise NotFoundError(f"no step {step_id!r}", path="step_id")
            return self._read(found, include)

    def list_steps(
        self,
        *,
        where: str | None = None,
        trajectory_id: str | None = None,
        group_id: str | None = None,
        channel: str | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        cursor: str | None = None,
        limit: int = 100,
        include: Sequence[str] = (),
    ) -> Page[Step]:
        """See Pool."""
        check_include(include)
        expression = parse(where, "steps") if where is not None else None
        with self._open():
            ids: Iterable[str] = self._steps if trajectory_id is None else self._steps_of.get(trajectory_id, [])
            rows = [
                (found.ordinal, found)
                for found in map(self._steps.__getitem__, ids)
                if group_id in (None, found.step.group_id)
                and channel in (None, found.step.channel)
                and (expression is None or self._step_matches(expression, found))
            ]
            page = _page(rows, order, cursor, limit)
            return Page([self._read(found, include) for found in page.items], page.next_cursor)

    def list_exchanges(self, trajectory_id: str, *, limit: int = 1000) -> list[Exchange]:
        """See Pool."""
        with self._open():
            found = [kept for _, kept in self._exchanges.values() if kept.trajectory_id == trajectory_id]
            return [_copy(kept) for kept in found[: check_limit(limit)]]

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """See Pool."""
        with self._open():
            return self._dead[after : after + check_limit(limit)]

    # --- signals ----------------------------------------------------------------------------------------------
    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool."""
        with self._open():
            for number, reward in enumerate(rewards):
                rules.check_reward(reward, f"rewards[{number}]")
                if reward.step_id is not None:
                    step = self._steps.get(reward.step_id)
                    if step is None:
                        raise NotFoundError(f"no step {reward.step_id!r}", path=f"rewards[{number}].step_id")
                    if reward.trajectory_id not in (None, step.step.trajectory_id):
                        raise rules.other_trajectory(reward, f"rewards[{number}]")
                else:
                    self._trajectory(reward.trajectory_id or "", f"rewards[{number}].trajectory_id")
            return sum(self._set_reward(reward) for reward in rewards)

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """See Pool."""
        with self._open():
            return self._events[max(after, 0) : max(after, 0) + check_limit(limit)]

    # --- shared server state ----------------------------------------------------------------------------------
    def set_policy(self, policy: Policy) -> Policy:
        """See Pool."""
        with self._open():
            known = self._versions.get((policy.model, policy.run))
            rules.check_policy(policy, known)
            if self._policies.get(policy.model) != policy:
                self._versions[policy.model, policy.run] = policy.version
                self._policies[policy.model] = policy
                self._event("policy.set", data=msgspec.to_builtins(policy))
            return policy

    def set_paused(self, paused: bool) -> None:
        """See Pool."""
        with self._open():
            if paused != self._paused:
                self._paused = paused
                self._event("gateway.paused" if paused else "gateway.resumed")

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        with self._open():
            return GatewayState(dict(self._policies), self._paused)

    def stats(self) -> PoolStats:
        """See Pool."""
        with self._open():
            by_status: dict[str, int] = {}
            for trajectory in self._trajectories.values():
                by_status[trajectory.status] = by_status.get(trajectory.status, 0) + 1
            return PoolStats(
                trajectories=by_status,
                steps=len(self._steps),
                exchanges=len(self._exchanges),
                excluded_steps=sum(found.step.excluded_reason is not None for found in self._steps.values()),
                tokens_flat=self._flat,
                tokens_stored=len(self._blocks) * BLOCK_SIZE + self._tails,
                message_nodes=len(self._nodes),
                rewards=len(self._rewards),
                batches=self._leases.counts(),
                last_event=len(self._events),
                failed_exchanges=sum(kept.error is not None for _, kept in self._exchanges.values()),
                dead_letters=len(self._dead),
            )

    # --- consuming --------------------------------------------------------------------------------------------
    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        spec = spec.resolved()
        needs = requirements(spec)
        check_id(consumer, "consumer")
        expression = None
        if spec.where is not None:
            expression = parse(spec.where, "steps" if spec.unit == "step" else "trajectories")
        with self._open():
            self._leases.expire()
            units = self._units(spec, expression, needs, consumer)
            keys = rules.unit_order(spec, [(key, ordinal) for key, (ordinal, _) in units.items()])[: spec.count]
            if len(keys) < (spec.min_size or 1):
                return None
            lease, counts = self._leases.lease(spec, consumer, keys)
            items = [
                BatchItem(
                    key=key,
                    trajectories=[
                        BatchTrajectory(
                            trajectory=_copy(trajectory), steps=[self._read(step, INCLUDABLE) for step in steps]
                        )
                        for trajectory, steps in units[key][1]
                    ],
                    delivery_count=count,
                )
                for key, count in zip(keys, counts, strict=True)
            ]
            return Batch(
                batch_id=lease.batch_id,
                consumer=consumer,
                epoch=lease.epoch,
                deadline=lease.deadline,
                unit=lease.unit,
                method=spec.method,
                items=items,
                policy=rules.batch_policy(items, self._policies),
            )

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        with self._open():
            self._leases.ack(batch_id, epoch)

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        with self._open():
            self._leases.release(batch_id, epoch)

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""
        with self._open():
            return self._leases.extend(batch_id, epoch, seconds)

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""
        check_id(consumer, "consumer")
        with self._open():
            return self._leases.resume(consumer, applied)

    def close(self) -> None:
        """See Pool."""
        with self._lock:
            self._closed = True

    # --- inside -----------------------------------------------------------------------------------------------
    def _units(
        self, spec: BatchSpec, expression: Expression | None, needs: tuple[str, ...], consumer: str
    ) -> dict[str, tuple[int, list[tuple[Trajectory, list[StoredStep]]]]]:
        """Available units by key: the ordinal that orders them, and their trajectories with their steps."""
        units: dict[str, tuple[int, list[tuple[Trajectory, list[StoredStep]]]]] = {}
        wanted = wanted_readiness(spec)
        for trajectory in self._trajectories.values():
            if trajectory.readiness not in wanted:
                continue
            steps = [self._steps[step_id] for step_id in self._steps_of[trajectory.trajectory_id]]
            steps = [s for s in steps if s.step.excluded_reason is None and s.step.channel == spec.channel]
            if spec.unit == "step":
                for step in steps:
                    if _has(step, needs) and (expression is None or self._step_matches(expression, step)):
                        units[step.step.step_id] = (step.ordinal, [(trajectory, [step])])
                continue
            if not steps or not all(_has(step, needs) for step in steps):
                continue
            if expression is not None and not self._trajectory_matches(expression, trajectory):
                continue
            key = trajectory.group_id if spec.unit == "group" else trajectory.trajectory_id
            if key is not None:
                ordinal = self._ordinals[trajectory.trajectory_id]
                units.setdefault(key, (ordinal, []))[1].append((trajectory, steps))
        return {
            key: unit
            for key, unit in units.items()
            if len(unit[1]) >= (spec.rollouts or 1) and self._leases.is_available(consumer, spec.unit or "step", key)
        }

    def _open(self) -> threading.RLock:
        if self._closed:
            raise PoolError("the pool is closed", hint="Open it again")
        return self._lock

    def _add_trajectory(self, new: NewTrajectory, trajectory_id: str) -> Trajectory:
        settings = {name: getattr(_copy(new), name) for name in rules.CREATION_FIELDS}
        there = Trajectory(trajectory_id=trajectory_id, created_at=self._clock(), **settings)
        self._trajectories[trajectory_id] = there
        self._ordinals[trajectory_id] = len(self._ordinals) + 1
        self._steps_of[trajectory_id] = []
        self._event("trajectory.created", trajectory_id)
        return there

    def _trajectory(self, trajectory_id: str, path: str = "trajectory_id") -> Trajectory:
        found = self._trajectories.get(trajectory_id)
        if found is None:
            raise NotFoundError(f"no trajectory {trajectory_id!r}", path=path)
        return found

    def _refresh(self, there: Trajectory) -> None:
        there.reward = there.rewards.get(rules.PRIMARY)
        there.readiness = rules.trajectory_readiness(there.status, there.reward is not None, there.excluded_reason)

    def _set_reward(self, reward: Reward) -> bool:
        target = reward.step_id or reward.trajectory_id or ""
        value = float(reward.value)
        if self._rewards.get((target, reward.name, reward.source)) == value:
            return False
        self._rewards[target, reward.name, reward.source] = value
        if reward.step_id is not None:
            step = self._steps[reward.step_id].step
            step.rewards[reward.name] = value
            step.reward = step.rewards.get(rules.PRIMARY)
            trajectory_id = step.trajectory_id
        else:
            there = self._trajectories[target]
            there.rewards[reward.name] = value
            self._refresh(there)
            trajectory_id = target
        data = {"name": reward.name, "value": value, "source": reward.source}
        self._event("reward.set", trajectory_id, reward.step_id, data)
        return True

    def _event(
        self,
        kind: str,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        event = Event(
            sequence=len(self._events) + 1,
            kind=kind,
            at=self._clock(),
            trajectory_id=trajectory_id,
            step_id=step_id,
            data=data or {},
        )
        self._events.append(event)

    def _count(self, prepared: Prepared) -> None:
        """Keep the counters that the forests would have."""
        step = prepared.step
        if prepared.prompt is not None or prepared.response is not None:
            plan = plan_tokens(vocabulary_root(step.vocabulary), _joined(prepared))
            self._blocks.update(plan.path.digests)
            self._tails += len(plan.path.tail)
            self._flat += plan.path.length
        root = digest(encode(step.tools))
        messages = [*(step.prompt_messages or []), *([step.response_message] if step.response_message else [])]
        self._nodes.update(chain(root, messages, exact_key))

    def _current(self, policy: Policy | None) -> Policy | None:
        return self._policies.get(policy.model) if policy else None

    def _trajectory_matches(self, expression: Expression, trajectory: Trajectory) -> bool:
        current = self._current(trajectory.policy)
        return evaluate(expression, lambda field: trajectory_value(trajectory, field, current))

    def _step_matches(self, expression: Expression, found: StoredStep) -> bool:
        trajectory = self._trajectories[found.step.trajectory_id]
        step = found.step
        step.readiness = rules.step_readiness(trajectory.readiness, step.excluded_reason)
        current = self._current(step.policy)
        return evaluate(expression, lambda field: step_value(step, trajectory, field, current))

    def _read(self, found: StoredStep, include: Sequence[str]) -> Step:
        trajectory = self._trajectories[found.step.trajectory_id]
        step = _copy(found.step)
        step.group_id = trajectory.group_id
        step.readiness = rules.step_readiness(trajectory.readiness, step.excluded_reason)
        usable = [s for s in self._steps_of[step.trajectory_id] if self._steps[s].step.excluded_reason is None]
        step.is_last = usable[-1:] == [step.step_id]
        if "messages" not in include:
            step.prompt_messages = step.response_message = step.tools = None
        restore_arrays(step, *found.prepared[1:5], include)
        return step


_NO_ARRAYS = {"prompt_ids": None, "response_ids": None, "response_mask": None, "response_logprobs": None}


def _joined(prepared: Prepared) -> TokenArray:
    parts = [array for array in (prepared.prompt, prepared.response) if array is not None]
    return np.concatenate(parts)


def _has(found: StoredStep, needs: tuple[str, ...]) -> bool:
    step = found.step
    has = {
        "tokens": found.prepared.response is not None,
        "logprobs": found.prepared.logprobs is not None,
        "messages": step.prompt_messages is not None and step.response_message is not None,
        "reward": True,  # A matter of the trajectory's readiness.
    }
    return all(has[name] for name in needs)


def _copy(record: R) -> R:
    """A copy that shares nothing that can change."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record))


def _page(rows: list[tuple[int, R]], order: str, cursor: str | None, limit: int) -> Page[R]:
    after = read_cursor(cursor, order)
    check_limit(limit)
    rows.sort(key=lambda row: row[0], reverse=order == "newest")
    if after is not None:
        rows = [row for row in rows if (row[0] < after if order == "newest" else row[0] > after)]
    more = cursor_for(rows[limit - 1][0], order) if len(rows) > limit else None
    return Page([row[1] for row in rows[:limit]], more)


def _done(work: Callable[[], list[AppendResult]]) -> Future[list[AppendResult]]:
    future: Future[list[AppendResult]] = Future()
    try:
        future.set_result(work())
    except AgentWorldError as error:
        future.set_exception(error)
    return future
