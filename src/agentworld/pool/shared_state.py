"""The part of a pool that the servers on it share: which policies speak, the pause, and the workers of gateways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentworld.pool.results import Drain, GatewayState, GatewayWorker, PoolStats
from agentworld.records import Metrics, Policy


class SharedStateMethods(Protocol):
    """See Pool."""

    def set_policy(self, policy: Policy) -> Policy:
        """Publish the weights that now speak. A lower version within the same run is a ConflictError."""

    def add_metrics(self, metrics: Sequence[Metrics]) -> int:
        """Tell numbers of runs as events `metrics.added`, all or none; returns how many.

        They are read back by their channel: `events(channel="metrics")`.
        """

    def set_paused(self, paused: bool) -> None:
        """Stop or resume the dispatch of new calls on every gateway of this pool."""

    def gateway_state(self) -> GatewayState:
        """Policies by model, and whether the gateways are paused."""

    def report_worker(self, worker: str, in_flight: int, pauses: int) -> None:
        """Say what a worker of a gateway does. It has to say so every few seconds, see agentworld.pool.draining."""

    def forget_worker(self, worker: str) -> None:
        """A worker ends; again is no error."""

    def gateway_workers(self) -> list[GatewayWorker]:
        """The workers of gateways that said something of themselves lately, by name."""

    def drain(self, timeout: float = 0.0) -> Drain:
        """Wait up to `timeout` seconds until the gateways are paused and no live worker has a call in flight."""

    def check_writable(self) -> None:
        """Write a mark and make it durable; PoolError where the pool cannot be written now."""

    def stats(self) -> PoolStats:
        """Counters; no scan."""
