"""Leases of the in-memory store; the states and rules are those of agentworld.pool.lease_rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentworld.errors import NotFoundError
from agentworld.pool.batch_items import batch_unit
from agentworld.pool.lease_rules import (
    LeaseState,
    UnitState,
    check_ack,
    check_extend,
    check_release,
    empty_resumption,
)
from agentworld.records import BatchRecord, BatchSpec, PoisonedUnit, Unit, new_id

Rewards = dict[str, dict[str, float]]
Kept = dict[str, Any]


@dataclass
class Delivery:
    """Where one unit stands with one consumer."""

    state: UnitState = "available"
    batch_id: str = ""
    count: int = 0
    reason: str | None = None


@dataclass
class Lease:
    """One batch. `units`: what is kept of each unit, by key (see batch_items.kept_unit)."""

    batch_id: str
    consumer: str
    spec: BatchSpec
    units: dict[str, Kept]
    epoch: int
    deadline: float
    created_at: float
    state: LeaseState = "leased"
    ended_at: float | None = None
    unit: Unit = field(init=False)

    def __post_init__(self) -> None:
        self.unit = self.spec.unit or "step"


class Leases:
    """All leases of one pool; the pool holds its lock while it calls."""

    def __init__(self, clock: Callable[[], float], event: Callable[..., None]) -> None:
        self._clock = clock
        self._event = event
        self.deliveries: dict[tuple[str, Unit, str, str], Delivery] = {}  # by consumer, unit, key and channel
        self.asked: dict[tuple[str, Unit, str], list[str]] = {}  # units at the latest lease, by consumer and channel
        self.batches: dict[str, Lease] = {}
        self._epochs: dict[str, int] = {}

    def expire(self) -> None:
        """Give back the units of leases whose time is over."""
        now = self._clock()
        for lease in self.batches.values():
            if lease.state == "leased" and lease.deadline <= now:
                self._end(lease, "expired")

    def delivery(self, consumer: str, unit: Unit, key: str, channel: str) -> Delivery:
        """Where the unit stands with the consumer in the channel."""
        return self.deliveries.get((consumer, unit, key, channel)) or Delivery()

    def set_aside(self, consumer: str, spec: BatchSpec, key: str, state: UnitState, reason: str) -> None:
        """Note that the consumer is not to get the unit."""
        unit = spec.unit or "step"
        delivery = self.deliveries.setdefault((consumer, unit, key, spec.channel), Delivery())
        delivery.state, delivery.reason = state, reason
        if state == "poisoned":
            data = {"consumer": consumer, "unit": unit, "key": key, "deliveries": delivery.count}
            self._event("unit.poisoned", data=data)

    def lease(self, spec: BatchSpec, consumer: str, units: dict[str, Kept]) -> tuple[Lease, list[int]]:
        """Lease the units; returns the lease and how often each unit has been handed out now."""
        now = self._clock()
        epoch = self._next_epoch(consumer)
        lease = Lease(new_id("bat"), consumer, spec, units, epoch, now + spec.lease_seconds, now)
        self.batches[lease.batch_id] = lease
        counts = []
        for key in units:
            delivery = self.deliveries.setdefault((consumer, lease.unit, key, spec.channel), Delivery())
            delivery.state, delivery.batch_id = "leased", lease.batch_id
            delivery.count += 1
            counts.append(delivery.count)
        self._event("batch.leased", data={"batch_id": lease.batch_id, "consumer": consumer, "units": len(units)})
        return lease, counts

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        lease = self.batch(batch_id)
        if check_ack(batch_id, lease.epoch, epoch, self.state(lease)):
            self._end(lease, "acked")

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        lease = self.batch(batch_id)
        if check_release(batch_id, lease.epoch, epoch, lease.state):
            self._end(lease, "released")

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""
        lease = self.batch(batch_id)
        check_extend(batch_id, lease.epoch, epoch, self.state(lease), seconds)
        lease.deadline = self._clock() + seconds
        return lease.deadline

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""
        result = empty_resumption()
        self._next_epoch(consumer)
        named = dict.fromkeys(applied)
        # Released first: what an applied batch lost to a later one of this consumer is then free to acknowledge.
        for lease in self.batches.values():
            if lease.consumer == consumer and lease.state == "leased" and lease.batch_id not in named:
                self._end(lease, "released")
                result["released"].append(lease.batch_id)
        for batch_id in named:
            found = self.batches.get(batch_id)
            if found is None or found.consumer != consumer:
                result["unknown"].append(batch_id)
                continue
            if found.state != "acked":
                self._end(found, "acked")
            result["acknowledged"].append(batch_id)
        return result

    def poisoned(self, consumer: str) -> list[PoisonedUnit]:
        """See Pool."""
        return [
            PoisonedUnit(consumer=consumer, unit=unit, key=key, deliveries=found.count, reason=found.reason or "")
            for (name, unit, key, _), found in sorted(self.deliveries.items(), key=lambda item: item[0])
            if name == consumer and found.state == "poisoned"
        ]

    def requeue(self, consumer: str, keys: Sequence[str]) -> int:
        """See Pool."""
        requeued = 0
        for (name, unit, key, _), found in self.deliveries.items():
            if name == consumer and key in keys and found.state == "poisoned":
                found.state, found.count, found.reason = "available", 0, None
                self._event("unit.requeued", data={"consumer": consumer, "unit": unit, "key": key})
                requeued += 1
        return requeued

    def record(self, lease: Lease, with_units: bool) -> BatchRecord:
        """The batch as the pool keeps it."""
        units = [batch_unit(lease.unit, key, kept) for key, kept in lease.units.items()] if with_units else []
        return BatchRecord(
            batch_id=lease.batch_id,
            consumer=lease.consumer,
            unit=lease.unit,
            method=lease.spec.method,
            channel=lease.spec.channel,
            state=self.state(lease),
            epoch=lease.epoch,
            deadline=lease.deadline,
            spec=lease.spec,
            created_at=lease.created_at,
            ended_at=lease.ended_at,
            unit_count=len(lease.units),
            units=units,
        )

    def counts(self) -> dict[str, int]:
        """Batches by state."""
        counts: dict[str, int] = {}
        for lease in self.batches.values():
            counts[lease.state] = counts.get(lease.state, 0) + 1
        return counts

    def batch(self, batch_id: str) -> Lease:
        """NotFoundError where there is none."""
        lease = self.batches.get(batch_id)
        if lease is None:
            raise NotFoundError(f"no batch {batch_id!r}", path="batch_id")
        return lease

    def state(self, lease: Lease) -> LeaseState:
        """The state of a batch; expired from its deadline on."""
        return "expired" if lease.state == "leased" and lease.deadline <= self._clock() else lease.state

    def _end(self, lease: Lease, state: LeaseState) -> None:
        """Move the lease's units on: those it holds, and for an acknowledgement those that nobody holds."""
        for key in lease.units:
            delivery = self.deliveries.get((lease.consumer, lease.unit, key, lease.spec.channel))
            if delivery is None:
                continue  # Deleted on request.
            held = delivery.state == "leased" and delivery.batch_id == lease.batch_id
            if state == "acked" and (held or delivery.state in ("available", "poisoned")):
                delivery.state, delivery.batch_id = "acknowledged", lease.batch_id
            elif held:
                delivery.state = "available"
        lease.state, lease.ended_at = state, self._clock()
        data: dict[str, Any] = {"batch_id": lease.batch_id, "consumer": lease.consumer}
        self._event(f"batch.{state}", data=data)

    def _next_epoch(self, consumer: str) -> int:
        self._epochs[consumer] = self._epochs.get(consumer, 0) + 1
        return self._epochs[consumer]
