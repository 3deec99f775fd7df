"""What every store offers. Gateway, trainers and API know only this; they see no SQL.

All methods are synchronous and safe to call from any thread; the stores group writes of many threads into one commit.
`submit_*` return at once with a future that is done after the commit, for event loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol, runtime_checkable

from agentworld.pool.results import (
    AppendResult,
    DeadLetter,
    GatewayState,
    Page,
    PoolStats,
    sequence_page,
)
from agentworld.records import (
    Batch,
    BatchSpec,
    Event,
    Exchange,
    NewTrajectory,
    Policy,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
)

__all__ = [
    "AppendResult",
    "Consumer",
    "DeadLetter",
    "GatewayState",
    "Page",
    "Pool",
    "PoolStats",
    "sequence_page",
]


@runtime_checkable
class Pool(Protocol):
    """A data pool. Errors are subclasses of AgentWorldError; a failed call has written nothing."""

    url: str

    # --- trajectories -----------------------------------------------------------------------------------------
    def create_trajectory(self, new: NewTrajectory) -> Trajectory:
        """Create, or return the one that is there; ConflictError where it was created with other settings."""

    def complete_trajectory(
        self, trajectory_id: str, status: TerminalStatus, reward: float | None = None
    ) -> Trajectory:
        """End a trajectory; the same status again changes nothing, another is a ConflictError."""

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """NotFoundError where there is none."""

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
        """One page, by creation order. With `where`, one page looks at a bounded number of rows, so that it can be
        short or empty and still have a next_cursor: go on until that is null.
        """

    # --- steps ------------------------------------------------------------------------------------------------
    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        """Store one call and its choices (none where it failed) in one transaction; done once durable.

        Idempotent by `exchange_id`. The choices belong to its trajectory, group and channel; where they leave
        prompt_messages, tools, agent, model, requested_model, policy, dialect, sampling, created_at or latency_ms
        unset they take the exchange's. Results are those of the choices, in order; a failed call (`error` set) gives
        an empty list.
        """

    def submit_steps(self, steps: Sequence[Step]) -> Future[list[AppendResult]]:
        """Append steps; the future is done once they are durable. Trajectories that are not there are created."""

    def append_exchange(self, exchange: Exchange) -> list[AppendResult]:
        """`submit_exchange` and wait."""

    def append_steps(self, steps: Sequence[Step]) -> list[AppendResult]:
        """`submit_steps` and wait."""

    def list_exchanges(self, trajectory_id: str, *, limit: int = 1000) -> list[Exchange]:
        """The trajectory's calls in commit order, failed ones too, without messages, tools and choices."""

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """Rejected steps with a sequence over `after`, in order."""

    def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """One step, read back from the forests exactly; NotFoundError where there is none."""

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
        """One page, by commit order. `include`: tokens, messages, logprobs. Short pages as in list_trajectories."""

    # --- signals ----------------------------------------------------------------------------------------------
    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """Set rewards, all or none; returns how many changed something. NotFoundError names the missing target."""

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events with a sequence over `after`, in order."""

    # --- shared server state ----------------------------------------------------------------------------------
    def set_policy(self, policy: Policy) -> Policy:
        """Publish the weights that now speak. A lower version within the same run is a ConflictError."""

    def set_paused(self, paused: bool) -> None:
        """Stop or resume the dispatch of new calls on every gateway of this pool."""

    def gateway_state(self) -> GatewayState:
        """Policies by model, and whether the gateways are paused."""

    def stats(self) -> PoolStats:
        """Counters; no scan."""

    # --- consuming --------------------------------------------------------------------------------------------
    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """Lease one batch, or None while not enough units are available. Expired leases come back first."""

    def ack(self, batch_id: str, epoch: int) -> None:
        """Mark as consumed; again is no error. StaleLeaseError where the lease has gone to another epoch or expired."""

    def release(self, batch_id: str, epoch: int) -> None:
        """Give the units back; again is no error."""

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """Move the deadline to now + seconds; returns it."""

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """After a restart: acknowledge this consumer's batches in `applied`, release its other leased ones.

        Returns {"acknowledged": [...], "released": [...], "unknown": [...]}. Releasing comes first, so that the units
        of an applied batch are acknowledged even where its lease ran out and this consumer had leased them again: no
        unit of the checkpoint is handed to it once more.
        """

    def consumer(self, name: str) -> Consumer:
        """A named consumer of this pool."""

    def close(self) -> None:
        """Finish pending writes and let go of files and threads."""


class Consumer(Protocol):
    """A named reader of a pool; see agentworld.pool.consumer for the one implementation over stores and HTTP."""

    name: str

    def resume(self, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool.resume."""

    def lease(self, spec: BatchSpec) -> Any:
        """One LeasedBatch or None."""

    def stream(self, spec: BatchSpec, *, timeout: float | None = None) -> Iterator[Any]:
        """Leased batches as they become available."""
