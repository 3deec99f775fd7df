"""Leases of the in-memory store; the states and rules are those of agentworld.pool.protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentworld.errors import NotFoundError
from agentworld.pool.lease_rules import LeaseState, check_ack, check_extend, check_release, empty_resumption
from agentworld.records import BatchSpec, Unit, new_id


@dataclass
class Delivery:
    """Where one unit stands with one consumer."""

    state: Literal["available", "leased", "acknowledged"] = "available"
    batch_id: str = ""
    count: int = 0


@dataclass
class Lease:
    """One batch."""

    batch_id: str
    consumer: str
    unit: Unit
    keys: list[str]
    epoch: int
    deadline: float
    state: LeaseState = "leased"


class Leases:
    """All leases of one pool; the pool holds its lock while it calls."""

    def __init__(self, clock: Callable[[], float], event: Callable[..., None]) -> None:
        self._clock = clock
        self._event = event
        self._deliveries: dict[tuple[str, Unit, str], Delivery] = {}
        self._batches: dict[str, Lease] = {}
        self._epochs: dict[str, int] = {}

    def expire(self) -> None:
        """Give back the units of leases whose time is over."""
        now = self._clock()
        for lease in self._batches.values():
            if lease.state == "leased" and lease.deadline <= now:
                self._end(lease, "expired")

    def is_available(self, consumer: str, unit: Unit, key: str) -> bool:
        """Whether the consumer may lease the unit."""
        delivery = self._deliveries.get((consumer, unit, key))
        return delivery is None or delivery.state == "available"

    def lease(self, spec: BatchSpec, consumer: str, keys: Sequence[str]) -> tuple[Lease, list[int]]:
        """Lease the units `keys`; returns the lease and how often each unit has been handed out now."""
        unit = spec.unit or "step"
        epoch = self._next_epoch(consumer)
        lease = Lease(new_id("bat"), consumer, unit, list(keys), epoch, self._clock() + spec.lease_seconds)
        self._batches[lease.batch_id] = lease
        counts = []
        for key in keys:
            delivery = self._deliveries.setdefault((consumer, unit, key), Delivery())
            delivery.state, delivery.batch_id = "leased", lease.batch_id
            delivery.count += 1
            counts.append(delivery.count)
        self._event("batch.leased", data={"batch_id": lease.batch_id, "consumer": consumer, "units": len(lease.keys)})
        return lease, counts

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        lease = self._batch(batch_id)
        if check_ack(batch_id, lease.epoch, epoch, self._state(lease)):
            self._end(lease, "acked")

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        lease = self._batch(batch_id)
        if check_release(batch_id, lease.epoch, epoch, lease.state):
            self._end(lease, "released")

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""
        lease = self._batch(batch_id)
        check_extend(batch_id, lease.epoch, epoch, self._state(lease), seconds)
        lease.deadline = self._clock() + seconds
        return lease.deadline

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""
        result = empty_resumption()
        self._next_epoch(consumer)
        named = dict.fromkeys(applied)
        # Released first: what an applied batch lost to a later one of this consumer is then free to acknowledge.
        for lease in self._batches.values():
            if lease.consumer == consumer and lease.state == "leased" and lease.batch_id not in named:
                self._end(lease, "released")
                result["released"].append(lease.batch_id)
        for batch_id in named:
            found = self._batches.get(batch_id)
            if found is None or found.consumer != consumer:
                result["unknown"].append(batch_id)
                continue
            if found.state != "acked":
                self._end(found, "acked")
            result["acknowledged"].append(batch_id)
        return result

    def counts(self) -> dict[str, int]:
        """Batches by state."""
        counts: dict[str, int] = {}
        for lease in self._batches.values():
            counts[lease.state] = counts.get(lease.state, 0) + 1
        return counts

    def _end(self, lease: Lease, state: LeaseState) -> None:
        """Move the lease's units on: those it holds, and for an acknowledgement those that nobody holds."""
        for key in lease.keys:
            delivery = self._deliveries[lease.consumer, lease.unit, key]
            held = delivery.state == "leased" and delivery.batch_id == lease.batch_id
            if state == "acked" and (held or delivery.state == "available"):
                delivery.state, delivery.batch_id = "acknowledged", lease.batch_id
            elif held:
                delivery.state = "available"
        lease.state = state
        data: dict[str, Any] = {"batch_id": lease.batch_id, "consumer": lease.consumer}
        self._event(f"batch.{state}", data=data)

    def _state(self, lease: Lease) -> LeaseState:
        return "expired" if lease.state == "leased" and lease.deadline <= self._clock() else lease.state

    def _batch(self, batch_id: str) -> Lease:
        lease = self._batches.get(batch_id)
        if lease is None:
            raise NotFoundError(f"no batch {batch_id!r}", path="batch_id")
        return lease

    def _next_epoch(self, consumer: str) -> int:
        self._epochs[consumer] = self._epochs.get(consumer, 0) + 1
        return self._epochs[consumer]
