"""Batches in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agentworld.pool import rules
from agentworld.pool.intake import INCLUDABLE
from agentworld.pool.lease_rules import requirements, wanted_readiness
from agentworld.pool.memory.leases import Leases
from agentworld.pool.memory.state import StoredStep, copied
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.query import Expression
from agentworld.records import Batch, BatchItem, BatchSpec, BatchTrajectory, Trajectory, check_id


class BatchMethods(MemoryStore):
    """See agentworld.pool.memory.leases."""

    def __init__(self, url: str = "memory://", *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(url, clock=clock)
        self._leases = Leases(clock, self._state.add_event)

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        spec = spec.resolved()
        needs = requirements(spec)
        check_id(consumer, "consumer")
        expression = self._state.query(spec.where, "steps" if spec.unit == "step" else "trajectories")
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


def _has(found: StoredStep, needs: tuple[str, ...]) -> bool:
    step = found.step
    has = {
        "tokens": found.prepared.response is not None,
        "logprobs": found.prepared.logprobs is not None,
        "messages": step.prompt_messages is not None and step.response_message is not None,
        "reward": True,  # A matter of the trajectory's readiness.
    }
    return all(has[name] for name in needs)
