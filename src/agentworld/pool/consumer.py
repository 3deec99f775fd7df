"""A named consumer: leases batches, acknowledges them, streams them, over a pool or over the HTTP client."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from agentworld.pool.lease_rules import check_names
from agentworld.pool.results import SpecReport, UnitExplanation
from agentworld.pool.shards import shard
from agentworld.records import Batch, BatchItem, BatchSpec, Policy, Unit, check_id

_FIRST_WAIT = 0.02
_LONGEST_WAIT = 1.0


class BatchSource(Protocol):
    """What a consumer needs of a pool; the HTTP client offers the same."""

    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool."""

    def explain_unit(self, consumer: str, target_id: str, spec: BatchSpec | None = None) -> UnitExplanation:
        """See Pool."""

    def check_spec(self, consumer: str, spec: BatchSpec | None = None) -> SpecReport:
        """See Pool."""


class LeasedBatch:
    """A batch with the ways to end its lease.

    Nothing is acknowledged by itself: a batch that is neither acknowledged nor released goes back when its time is up.
    """

    def __init__(self, source: BatchSource, batch: Batch) -> None:
        self._source = source
        self.batch = batch
        self.deadline = batch.deadline

    @property
    def batch_id(self) -> str:
        """The batch's id, which a trainer puts into its checkpoint."""
        return self.batch.batch_id

    @property
    def consumer(self) -> str:
        """The consumer that holds the lease."""
        return self.batch.consumer

    @property
    def epoch(self) -> int:
        """The fencing number of the lease."""
        return self.batch.epoch

    @property
    def unit(self) -> Unit:
        """What an item is: step, trajectory or group."""
        return self.batch.unit

    @property
    def method(self) -> str:
        """The method that the batch was asked for."""
        return self.batch.method

    @property
    def items(self) -> list[BatchItem]:
        """The units."""
        return self.batch.items

    @property
    def policy(self) -> Policy | None:
        """The policy that spoke when the batch was leased, where the pool knows one."""
        return self.batch.policy

    @property
    def metadata(self) -> dict[str, Any]:
        """Free-form extras."""
        return self.batch.metadata

    def ack(self) -> None:
        """Mark as consumed; StaleLeaseError where the lease is lost."""
        self._source.ack(self.batch_id, self.epoch)

    def release(self) -> None:
        """Give the units back."""
        self._source.release(self.batch_id, self.epoch)

    def extend(self, seconds: float) -> float:
        """Move the deadline to `seconds` from now; returns it."""
        self.deadline = self._source.extend(self.batch_id, self.epoch, seconds)
        return self.deadline

    def shard(self, rank: int, world: int, *, micro_batch_size: int = 1) -> Batch:
        """The share of worker `rank` of `world`: every share has as many items, and as many micro-batches of that size.

        What is missing are copies with `padding` true, to be computed but not trained on; the other items of all shares
        are the batch, each once. See agentworld.pool.shards.
        """
        return msgspec.structs.replace(shard(self.batch, rank, world, micro_batch_size), deadline=self.deadline)

    def to(self, name: str, /, **options: Any) -> Any:
        """The batch in a trainer's own layout, by the adapter of that name (entry points `agentworld.adapters`)."""
        return self.batch.to(name, **options)


class PoolConsumer:
    """One named reader. Consumers of different names each see everything; of one name they share.

    `sleep`: waits between two looks of a stream, in place of being woken.
    """

    def __init__(
        self,
        source: BatchSource,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.name = check_id(name, "consumer")
        self._source = source
        self._clock = clock
        self._sleep = sleep

    def resume(self, applied: Sequence[str]) -> dict[str, list[str]]:
        """After a restart: acknowledge the batches in the checkpoint, release the others. See Pool.resume."""
        return self._source.resume(self.name, check_names(applied, "applied"))

    def explain(self, target_id: str, spec: BatchSpec | None = None) -> UnitExplanation:
        """Why the unit of this step, trajectory or group is, or is not, handed out to this consumer. See
        Pool.explain_unit.
        """
        return self._source.explain_unit(self.name, target_id, spec)

    def check(self, spec: BatchSpec | None = None) -> SpecReport:
        """Whether a lease with `spec` can succeed, and what keeps what does not fit. See Pool.check_spec."""
        return self._source.check_spec(self.name, spec)

    def lease(self, spec: BatchSpec) -> LeasedBatch | None:
        """One batch, or None while not enough units are available."""
        batch = self._source.lease(spec, self.name)
        return LeasedBatch(self._source, batch) if batch is not None else None

    def stream(self, spec: BatchSpec, *, timeout: float | None = None) -> Iterator[LeasedBatch]:
        """Batches as they become available; ends when none came for `timeout` seconds (None: waits for ever).

        Over HTTP the server holds the request until there is a batch. A pool in this process wakes the stream when
        something was committed; what only time brings (a lease that runs out) is looked for every second.
        """
        patience = math.inf if timeout is None else timeout
        deadline = self._clock() + patience
        woken = threading.Event()
        watch = getattr(self._source, "watch", None) if self._sleep is None else None
        stop = None if watch is None else watch(woken.set)
        wait = _FIRST_WAIT
        try:
            while True:
                woken.clear()  # Before the look: what is committed after it wakes anew.
                batch = self._lease_within(spec, deadline - self._clock())
                if batch is not None:
                    yield batch
                    wait, deadline = _FIRST_WAIT, self._clock() + patience
                    continue
                left = deadline - self._clock()
                if left <= 0:
                    return
                if self._sleep is not None:
                    self._sleep(min(wait, left))
                elif stop is None or woken.wait(min(_LONGEST_WAIT, left)):
                    # Not at each of many commits in a row.
                    time.sleep(min(wait, left))
                wait = min(wait * 2, _LONGEST_WAIT) if stop is None else _FIRST_WAIT
        finally:
            if stop is not None:
                stop()

    def _lease_within(self, spec: BatchSpec, seconds: float) -> LeasedBatch | None:
        """One batch; None where there was none, over HTTP for as long as the server waits."""
        within = getattr(self._source, "lease_within", None)
        if within is None or self._sleep is not None:
            return self.lease(spec)
        batch = within(spec, self.name, max(0.0, seconds))
        return LeasedBatch(self._source, batch) if batch is not None else None
