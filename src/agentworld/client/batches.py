"""Batches over HTTP: leasing, acknowledging, and why a consumer gets what it gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from agentworld.client import calls, wire
from agentworld.pool.consumer import PoolConsumer
from agentworld.pool.protocol import Page, SpecReport, UnitExplanation
from agentworld.records import Batch, BatchRecord, BatchSpec, BatchState, PoisonedUnit

T = TypeVar("T")


class BatchMethods(ABC):
    """The methods of a factory that are about batches; what each does is said in agentworld.pool.protocol.Pool."""

    @abstractmethod
    def _send(self, call: calls.Call[T]) -> T:
        """Send a call and read its reply."""

    @abstractmethod
    def _read(self, call: calls.Call[T]) -> T | None:
        """As `_send`, None where the reply has no content."""

    @abstractmethod
    def _body(self, call: calls.Call[Any]) -> bytes:
        """The bytes of the reply."""

    def consumer(self, name: str) -> PoolConsumer:
        """See Pool."""
        return PoolConsumer(self, name)

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        return self.lease_within(spec, consumer, 0.0)

    def lease_within(self, spec: BatchSpec, consumer: str, seconds: float) -> Batch | None:
        """One batch, or None where the server had not enough units for `seconds` (at most 30 are asked for)."""
        return self._read(calls.lease(spec, consumer, min(seconds, wire.LONGEST_WAIT)))

    def get_batch(self, batch_id: str) -> BatchRecord:
        """See Pool."""
        return self._send(calls.get_batch(batch_id))

    def list_batches(
        self,
        *,
        consumer: str | None = None,
        state: BatchState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[BatchRecord]:
        """See Pool."""
        return self._send(calls.list_batches(consumer=consumer, batch_state=state, cursor=cursor, limit=limit))

    def poisoned(self, consumer: str) -> list[PoisonedUnit]:
        """See Pool."""
        return self._send(calls.poisoned(consumer)).items

    def explain_unit(self, consumer: str, target_id: str, spec: BatchSpec | None = None) -> UnitExplanation:
        """See Pool."""
        return self._send(calls.explain_unit(consumer, target_id, spec))

    def check_spec(self, consumer: str, spec: BatchSpec | None = None) -> SpecReport:
        """See Pool."""
        return self._send(calls.check_spec(consumer, spec))

    def requeue(self, consumer: str, keys: Sequence[str]) -> int:
        """See Pool."""
        return self._send(calls.requeue(consumer, keys)).requeued

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        self._body(calls.end_lease("ack", batch_id, epoch))

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        self._body(calls.end_lease("release", batch_id, epoch))

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""
        return self._send(calls.extend(batch_id, epoch, seconds)).deadline

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""
        reply = self._send(calls.resume(consumer, applied))
        return {"acknowledged": reply.acknowledged, "released": reply.released, "unknown": reply.unknown}
