"""The in-memory store: plain dictionaries under one lock, for tests and short scripts; it ends with the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Literal, TypeVar

import msgspec

from agentworld.errors import AgentWorldError, NotFoundError, PoolError
from agentworld.forest import BLOCK_SIZE
from agentworld.pool import rules
from agentworld.pool.base import Store, check_after, check_limit, cursor_for, read_cursor
from agentworld.pool.bounds import check_new_trajectory
from agentworld.pool.intake import INCLUDABLE, check_include
from agentworld.pool.lease_rules import requirements, wanted_readiness
from agentworld.pool.memory.append import append_exchange, append_steps
from agentworld.pool.memory.leases import Leases
from agentworld.pool.memory.state import State, StoredStep, copied
from agentworld.pool.protocol import AppendResult, DeadLetter, GatewayState, Page, PoolStats
from agentworld.query import Expression, parse
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
    new_id,
)

R = TypeVar("R")


class MemoryPool(Store):
    """A pool in this process's memory. `clock` gives seconds since the epoch."""

    def __init__(self, url: str = "memory://", *, clock: Callable[[], float] = time.time) -> None:
        self.url = url
        self._lock = threading.RLock()
        self._closed = False
        self._state = State(clock)
        self._leases = Leases(clock, self._state.add_event)

    # --- trajectories -----------------------------------------------------------------------------------------
    def create_trajectory(self, new: NewTrajectory) -> Trajectory:
        """See Pool."""
        trajectory_id = check_id(new.trajectory_id or new_id("trj"), "trajectory_id")
        if new.group_id is not None:
            check_id(new.group_id, "group_id")
        check_new_trajectory(new)
        with self._open():
            there = self._state.trajectories.get(trajectory_id)
            if there is None:
                there = self._state.add_trajectory(new, trajectory_id)
            elif trajectory_id in self._state.declared:
                rules.check_same_creation(new, there)
            else:
                for name in rules.CREATION_FIELDS:
                    setattr(there, name, getattr(copied(new), name))
            self._state.declared.add(trajectory_id)
            return copied(there)

    def complete_trajectory(
        self, trajectory_id: str, status: TerminalStatus, reward: float | None = None
    ) -> Trajectory:
        """See Pool."""
        with self._open():
            there = self._state.trajectory(trajectory_id)
            signal = (
                Reward(value=reward, trajectory_id=trajectory_id, source="complete") if reward is not None else None
            )
            if signal is not None:
                rules.check_reward(signal, "reward")
            if rules.check_completion(there, status):
                there.status = status
                there.completed_at = self._state.clock()
                self._state.refresh(there)
                self._state.add_event("trajectory.completed", trajectory_id, data={"status": status})
            if signal is not None:
                self._state.set_reward(signal)
            return copied(there)

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool."""
        with self._open():
            return copied(self._state.trajectory(trajectory_id))

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
                (self._state.ordinals[found.trajectory_id], found)
                for found in self._state.trajectories.values()
                if trajectory_id in (None, found.trajectory_id)
                and group_id in (None, found.group_id)
                and channel in (None, found.channel)
                and self._state.trajectory_matches(expression, found)
            ]
            page = _page(rows, order, cursor, limit)
            return Page([copied(found) for found in page.items], page.next_cursor)

    # --- steps ------------------------------------------------------------------------------------------------
    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        """See Pool."""
        return self._done(lambda: append_exchange(self._state, exchange))

    def submit_steps(self, steps: Sequence[Step]) -> Future[list[AppendResult]]:
        """See Pool."""
        return self._done(lambda: append_steps(self._state, steps))

    def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """See Pool."""
        check_include(include)
        with self._open():
            found = self._state.steps.get(step_id)
            if found is None:
                raise NotFoundError(f"no step {step_id!r}", path="step_id")
            return self._state.read(found, include)

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
            ids: Iterable[str] = (
                self._state.steps if trajectory_id is None else self._state.steps_of.get(trajectory_id, [])
            )
            rows = [
                (found.ordinal, found)
                for found in map(self._state.steps.__getitem__, ids)
                if group_id in (None, self._state.trajectories[found.step.trajectory_id].group_id)
                and channel in (None, found.step.channel)
                and self._state.step_matches(expression, found)
            ]
            page = _page(rows, order, cursor, limit)
            return Page([self._state.read(found, include) for found in page.items], page.next_cursor)

    def list_exchanges(self, trajectory_id: str, *, limit: int = 1000) -> list[Exchange]:
        """See Pool."""
        with self._open():
            found = [kept for _, kept in self._state.exchanges.values() if kept.trajectory_id == trajectory_id]
            return [copied(kept) for kept in found[: check_limit(limit)]]

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """See Pool."""
        with self._open():
            return self._state.dead[check_after(after) :][: check_limit(limit)]

    # --- signals ----------------------------------------------------------------------------------------------
    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool."""
        with self._open():
            for number, reward in enumerate(rewards):
                rules.check_reward(reward, f"rewards[{number}]")
                if reward.step_id is not None:
                    step = self._state.steps.get(reward.step_id)
                    if step is None:
                        raise NotFoundError(f"no step {reward.step_id!r}", path=f"rewards[{number}].step_id")
                    if reward.trajectory_id not in (None, step.step.trajectory_id):
                        raise rules.other_trajectory(reward, f"rewards[{number}]")
                else:
                    self._state.trajectory(reward.trajectory_id or "", f"rewards[{number}].trajectory_id")
            return sum(self._state.set_reward(reward) for reward in rewards)

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """See Pool."""
        with self._open():
            return self._state.events[check_after(after) :][: check_limit(limit)]

    # --- shared server state ----------------------------------------------------------------------------------
    def set_policy(self, policy: Policy) -> Policy:
        """See Pool."""
        with self._open():
            known = self._state.versions.get((policy.model, policy.run))
            rules.check_policy(policy, known)
            if self._state.policies.get(policy.model) != policy:
                self._state.versions[policy.model, policy.run] = policy.version
                self._state.policies[policy.model] = policy
                self._state.add_event("policy.set", data=msgspec.to_builtins(policy))
            return policy

    def set_paused(self, paused: bool) -> None:
        """See Pool."""
        with self._open():
            if paused != self._state.paused:
                self._state.paused = paused
                self._state.add_event("gateway.paused" if paused else "gateway.resumed")

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        with self._open():
            return GatewayState(dict(self._state.policies), self._state.paused)

    def stats(self) -> PoolStats:
        """See Pool."""
        with self._open():
            by_status: dict[str, int] = {}
            for trajectory in self._state.trajectories.values():
                by_status[trajectory.status] = by_status.get(trajectory.status, 0) + 1
            return PoolStats(
                trajectories=by_status,
                steps=len(self._state.steps),
                exchanges=len(self._state.exchanges),
                excluded_steps=sum(found.step.excluded_reason is not None for found in self._state.steps.values()),
                tokens_flat=self._state.tokens_flat,
                tokens_stored=len(self._state.blocks) * BLOCK_SIZE + self._state.tokens_in_tails,
                message_nodes=len(self._state.nodes),
                rewards=len(self._state.rewards),
                batches=self._leases.counts(),
                last_event=len(self._state.events),
                failed_exchanges=sum(kept.error is not None for _, kept in self._state.exchanges.values()),
                dead_letters=len(self._state.dead),
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
                            trajectory=copied(trajectory), steps=[self._state.read(step, INCLUDABLE) for step in steps]
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
                policy=rules.batch_policy(items, self._state.policies),
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
    def _done(self, work: Callable[[], list[AppendResult]]) -> Future[list[AppendResult]]:
        future: Future[list[AppendResult]] = Future()
        with self._open():
            try:
                future.set_result(work())
            except AgentWorldError as error:
                future.set_exception(error)
        return future

    def _units(
        self, spec: BatchSpec, expression: Expression | None, needs: tuple[str, ...], consumer: str
    ) -> dict[str, tuple[int, list[tuple[Trajectory, list[StoredStep]]]]]:
        """Available units by key: the ordinal that orders them, and their trajectories with their steps."""
        units: dict[str, tuple[int, list[tuple[Trajectory, list[StoredStep]]]]] = {}
        wanted = wanted_readiness(spec)
        for trajectory in self._state.trajectories.values():
            if trajectory.readiness not in wanted:
                continue
            steps = [self._state.steps[step_id] for step_id in self._state.steps_of[trajectory.trajectory_id]]
            steps = [s for s in steps if s.step.excluded_reason is None and s.step.channel == spec.channel]
            if spec.unit == "step":
                for step in steps:
                    if _has(step, needs) and self._state.step_matches(expression, step):
                        units[step.step.step_id] = (step.ordinal, [(trajectory, [step])])
                continue
            if not steps or not all(_has(step, needs) for step in steps):
                continue
            if not self._state.trajectory_matches(expression, trajectory):
                continue
            key = trajectory.group_id if spec.unit == "group" else trajectory.trajectory_id
            if key is not None:
                ordinal = self._state.ordinals[trajectory.trajectory_id]
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


def _has(found: StoredStep, needs: tuple[str, ...]) -> bool:
    step = found.step
    has = {
        "tokens": found.prepared.response is not None,
        "logprobs": found.prepared.logprobs is not None,
        "messages": step.prompt_messages is not None and step.response_message is not None,
        "reward": True,  # A matter of the trajectory's readiness.
    }
    return all(has[name] for name in needs)


def _page(rows: list[tuple[int, R]], order: str, cursor: str | None, limit: int) -> Page[R]:
    after = read_cursor(cursor, order)
    check_limit(limit)
    rows.sort(key=lambda row: row[0], reverse=order == "newest")
    if after is not None:
        rows = [row for row in rows if (row[0] < after if order == "newest" else row[0] > after)]
    more = cursor_for(rows[limit - 1][0], order) if len(rows) > limit else None
    return Page([row[1] for row in rows[:limit]], more)
