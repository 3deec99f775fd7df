"""Batches: leased, acknowledged, released; what is kept of them; units that were set aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentworld.pool.explaining import Delivered
from agentworld.pool.lease_rules import check_names
from agentworld.pool.results import Page
from agentworld.pool.sql import batch_reads
from agentworld.pool.sql.backlog import Scope
from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.leases import Leases
from agentworld.pool.sql.store_base import SqlStore
from agentworld.records import Batch, BatchRecord, BatchSpec, BatchState, PoisonedUnit, check_id


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

    def poisoned(self, consumer: str) -> list[PoisonedUnit]:
        """See Pool."""
        check_id(consumer, "consumer")
        with self._database.reading() as connection:
            return batch_reads.poisoned(connection, consumer)

    def requeue(self, consumer: str, keys: Sequence[str]) -> int:
        """See Pool."""
        check_id(consumer, "consumer")
        named = check_names(keys, "keys")
        return self._writer.submit(lambda txn: batch_reads.requeue(txn, consumer, named)).result()

    def _delivered(self, consumer: str, spec: BatchSpec, key: str) -> Delivered:
        scope = Scope(consumer, spec.unit or "step", spec.channel)
        with self._database.reading() as connection:
            return batch_reads.delivered(connection, scope, key, self._clock())

    def get_batch(self, batch_id: str) -> BatchRecord:
        """See Pool."""
        with self._database.reading() as connection:
            return batch_reads.get_batch(connection, batch_id, self._clock())

    def list_batches(
        self,
        *,
        consumer: str | None = None,
        state: BatchState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[BatchRecord]:
        """See Pool."""
        with self._database.reading() as connection:
            return batch_reads.list_batches(connection, consumer, state, cursor, limit, self._clock())
