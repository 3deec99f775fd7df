"""Batches in memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from agentworld.pool import rules
from agentworld.pool.base import check_limit, cursor_for, read_cursor
from agentworld.pool.batch_items import batch_trajectory, kept_unit
from agentworld.pool.explaining import Delivered
from agentworld.pool.intake import INCLUDABLE
from agentworld.pool.lease_rules import (
    check_batch_state,
    check_names,
    check_spec,
    required_annotations,
    requirements,
)
from agentworld.pool.memory import groups
from agentworld.pool.memory.leases import Leases, Rewards
from agentworld.pool.memory.state import copied
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.pool.memory.units import Candidate, Units
from agentworld.pool.results import Page
from agentworld.pool.unit_rules import Member
from agentworld.records import (
    Batch,
    BatchItem,
    BatchRecord,
    BatchSpec,
    BatchState,
    BatchTrajectory,
    PoisonedUnit,
    Unit,
    check_id,
)


class BatchMethods(MemoryStore):
    """See agentworld.pool.memory.leases."""

    def __init__(self, url: str = "memory://", *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(url, clock=clock)
        self._leases = Leases(clock, self._state.add_event)
        self._completed: dict[str, int] = {}
        self._events_seen = 0

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        spec, needs = check_spec(spec, consumer)
        with self._open():
            self._leases.expire()
            groups.close_due(self._state)
            units = Units(self._state, spec, needs, self._ages())
            chosen = self._choose(units, spec, consumer)[: spec.count]
            if len(chosen) < (spec.min_size or 1):
                return None
            rewards = {candidate.key: self._rewards(units, candidate.verdict.members) for candidate in chosen}
            lease_unit = spec.unit or "step"
            kept = {
                candidate.key: kept_unit(lease_unit, candidate.verdict.members, rewards[candidate.key])
                for candidate in chosen
            }
            lease, counts = self._leases.lease(spec, consumer, kept)
            items = [
                BatchItem(
                    key=candidate.key,
                    trajectories=[
                        self._entry(units, spec, member, rewards[candidate.key]) for member in candidate.verdict.members
                    ],
                    delivery_count=count,
                    rewards=rewards[candidate.key],
                )
                for candidate, count in zip(chosen, counts, strict=True)
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
        named = check_names(applied, "applied")
        with self._open():
            return self._leases.resume(consumer, named)

    def poisoned(self, consumer: str) -> list[PoisonedUnit]:
        """See Pool."""
        check_id(consumer, "consumer")
        with self._open():
            return self._leases.poisoned(consumer)

    def requeue(self, consumer: str, keys: Sequence[str]) -> int:
        """See Pool."""
        check_id(consumer, "consumer")
        named = check_names(keys, "keys")
        with self._open():
            return self._leases.requeue(consumer, named)

    def _delivered(self, consumer: str, spec: BatchSpec, key: str) -> Delivered:
        with self._open():
            found = self._leases.delivery(consumer, spec.unit or "step", key, spec.channel)
            lease = self._leases.batches.get(found.batch_id)
            held = lease is not None and self._leases.state(lease) == "leased"
        if found.state == "leased" and not held:
            return Delivered(deliveries=found.count)
        batch = found.batch_id if found.state in ("leased", "acknowledged") else None
        deadline = lease.deadline if lease is not None and found.state == "leased" else None
        return Delivered(found.state, found.count, batch, deadline, found.reason)

    def get_batch(self, batch_id: str) -> BatchRecord:
        """See Pool."""
        with self._open():
            return self._leases.record(self._leases.batch(batch_id), with_units=True)

    def list_batches(
        self,
        *,
        consumer: str | None = None,
        state: BatchState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[BatchRecord]:
        """See Pool."""
        check_batch_state(state)
        check_limit(limit)
        before = read_cursor(cursor, "newest")
        with self._open():
            rows = [
                (number, self._leases.record(lease, with_units=False))
                for number, lease in enumerate(self._leases.batches.values(), start=1)
                if (before is None or number < before)
                and consumer in (None, lease.consumer)
                and state in (None, self._leases.state(lease))
            ][::-1]
        more = cursor_for(rows[limit - 1][0], "newest") if len(rows) > limit else None
        return Page([record for _, record in rows[:limit]], more)

    def _ages(self) -> dict[str, int]:
        """When each trajectory was completed, as the number of the event."""
        for event in self._state.events[self._events_seen :]:
            if event.kind == "trajectory.completed" and event.trajectory_id is not None:
                self._completed[event.trajectory_id] = event.sequence
        self._events_seen = len(self._state.events)
        return self._completed

    def _choose(self, units: Units, spec: BatchSpec, consumer: str) -> list[Candidate]:
        """The units that fit, in order; notes those that the consumer is not to get."""
        unit: Unit = spec.unit or "step"
        chosen: list[Candidate] = []
        asked = self._leases.asked[consumer, unit, spec.channel] = []
        dropped: Counter[str] = Counter()
        for candidate in sorted(units.candidates(), key=lambda candidate: candidate.place):
            delivery = self._leases.delivery(consumer, unit, candidate.key, spec.channel)
            verdict = candidate.verdict
            if candidate.is_offered and verdict.kind != "gone":
                asked.append(candidate.key)
            if delivery.state != "available":
                continue
            if verdict.kind in ("stale", "equal"):
                if len(chosen) < spec.count:
                    self._leases.set_aside(consumer, spec, candidate.key, "dropped", verdict.reason or "")
                    dropped[verdict.kind] += 1
            elif verdict.kind == "fits" and delivery.count >= spec.max_deliveries:
                if len(chosen) < spec.count:
                    reason = f"handed out {delivery.count} times, never acknowledged"
                    self._leases.set_aside(consumer, spec, candidate.key, "poisoned", reason)
            elif verdict.kind == "fits":
                chosen.append(candidate)
        if dropped:
            self._state.add_event("batch.dropped", data={"consumer": consumer, "unit": unit, **dropped})
        return chosen

    def _rewards(self, units: Units, members: Sequence[Member]) -> Rewards:
        """Every reward of the trajectories and their steps as it is now, by id."""
        found: Rewards = {}
        for member in members:
            if member.rewards:
                found[member.trajectory_id] = dict(member.rewards)
            for stored in units.steps_of(member):
                if stored.step.rewards:
                    found[stored.step.step_id] = dict(stored.step.rewards)
        return found

    def _entry(self, units: Units, spec: BatchSpec, member: Member, rewards: Rewards) -> BatchTrajectory:
        steps = [self._state.read(stored, INCLUDABLE) for stored in units.steps_of(member)]
        names = required_annotations(requirements(spec))
        targets = [member.trajectory_id, *(step.step_id for step in steps)]
        trajectory = copied(self._state.trajectories[member.trajectory_id])
        arrays = units.arrays(names, targets) if names else {}
        return batch_trajectory(trajectory, steps, member, rewards.get(member.trajectory_id, {}), arrays)
