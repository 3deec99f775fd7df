"""Batches: leased, acknowledged, released."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.leases import Leases
from agentworld.pool.sql.store_base import SqlStore
from agentworld.records import Batch, BatchSpec


class BatchMethods(SqlStore):
    """See agentworld.pool.sql.leases."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        super().__init__(database, clock)
        self._leases = Leases(database, self._writer, clock)

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        return self._leases.lease(spec, consumer)

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        self._leases.ack(batch_id, epoch)

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        self._leases.release(batch_id, epoch)

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""
        return self._leases.extend(batch_id, epoch, seconds)

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""
        return self._leases.resume(consumer, applied)
