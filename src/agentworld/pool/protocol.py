"""What every store offers. Gateway, trainers and API know only this; they see no SQL.

All methods are synchronous and safe to call from any thread; the stores group writes of many threads into one commit.
`submit_*` return at once with a future that is done after the commit, for event loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol, runtime_checkable

from agentworld.pool.arrays import StepArrays
from agentworld.pool.call_marks import CallMark, CallMarkMethods
from agentworld.pool.curation_methods import CurationMethods
from agentworld.pool.dataset_methods import DatasetMethods, WholeMethods
from agentworld.pool.keeping_methods import KeepingMethods
from agentworld.pool.keys import KeyMethods
from agentworld.pool.media.blob import Medium
from agentworld.pool.results import (
    AppendResult,
    Awaited,
    DeadLetter,
    Drain,
    GatewayState,
    GatewayWorker,
    Page,
    PoolStats,
    Rejected,
    SignalsResult,
    SpecReport,
    UnitExplanation,
    sequence_page,
)
from agentworld.pool.shared_state import SharedStateMethods
from agentworld.query import Explanation, Subject
from agentworld.records import (
    Annotation,
    Batch,
    BatchRecord,
    BatchSpec,
    BatchState,
    Event,
    Exchange,
    Feedback,
    FeedbackKind,
    Group,
    NewTrajectory,
    PoisonedUnit,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
)

__all__ = [
    "AppendResult",
    "Awaited",
    "CallMark",
    "Consumer",
    "DeadLetter",
    "Drain",
    "GatewayState",
    "GatewayWorker",
    "Page",
    "Pool",
    "PoolStats",
    "Rejected",
    "SignalsResult",
    "SpecReport",
    "UnitExplanation",
    "sequence_page",
]


@runtime_checkable
class Pool(
    SharedStateMethods,
    KeyMethods,
    KeepingMethods,
    CallMarkMethods,
    CurationMethods,
    DatasetMethods,
    WholeMethods,
    Protocol,
):
    """A data pool. Errors are subclasses of AgentWorldError; a failed call has written nothing.

    `own_channel` of methods that write: ForbiddenError where something named is of another channel, or a signal is on
    what is not there yet, as nobody can say whose that will be.
    """

    url: str
    poll_seconds: float  # the longest time between two looks for events, where nothing wakes who waits for them

    # --- trajectories -----------------------------------------------------------------------------------------
    def create_trajectory(self, new: NewTrajectory, *, own_channel: str | None = None) -> Trajectory:
        """Create, or return the one that is there; ConflictError where it was created with other settings."""

    def complete_trajectory(
        self,
        trajectory_id: str,
        status: TerminalStatus,
        reward: float | None = None,
        *,
        own_channel: str | None = None,
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
        sort: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Trajectory]:
        """One page, by creation order. With `where` it can be short or empty, and still have a next_cursor to go on.

        `sort`: in the order of a field of `pool.sorting.SORTS`, with `-` before it from the highest value on; absent
        values come last. What changes its value between two pages can be in both, or in none.
        """

    # --- steps ------------------------------------------------------------------------------------------------
    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        """Store one call and its choices (none where it failed) in one transaction; done once durable.

        Idempotent by `exchange_id`. The choices belong to its trajectory, group and channel; where they leave
        prompt_messages, tools, agent, model, requested_model, policy, dialect, sampling, created_at or latency_ms
        unset they take the exchange's. Results are those of the choices, in order; a failed call (`error` set) gives
        an empty list.
        """

    def submit_steps(
        self, steps: Sequence[Step | Rejected], *, own_channel: str | None = None
    ) -> Future[list[AppendResult]]:
        """Append steps, done once durable; a trajectory that is not there is created. What is bad is rejected alone."""

    def append_exchange(self, exchange: Exchange) -> list[AppendResult]:
        """`submit_exchange` and wait."""

    def append_steps(self, steps: Sequence[Step | Rejected], *, own_channel: str | None = None) -> list[AppendResult]:
        """`submit_steps` and wait."""

    def list_exchanges(
        self, trajectory_id: str, *, order: Literal["oldest", "newest"] = "oldest", limit: int = 1000
    ) -> list[Exchange]:
        """The trajectory's first calls in commit order, or its last ones from the newest on; failed ones too, without
        messages, tools and choices.
        """

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

    def sequences(
        self,
        *,
        trajectory_id: str | None = None,
        step_ids: Sequence[str] | None = None,
        where: str | None = None,
        channel: str | None = None,
    ) -> Iterator[StepArrays]:
        """The ids, masks and log-probabilities of steps as arrays, without lists: of a trajectory, of named steps,
        or of those that match; excluded ones too, but for `where`. Steps without ids are left out.

        Steps of a trajectory come together and in commit order, as far as one page of the listing holds them. It reads
        as it goes on, so that neither memory nor a transaction holds the whole. NotFoundError names a missing step.
        """

    def explain(self, where: str, subject: Subject = "trajectories") -> Explanation:
        """How a query is understood and answered."""

    # --- signals ----------------------------------------------------------------------------------------------
    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """`add_signals` of rewards; returns how many changed something."""

    def add_feedback(self, feedback: Sequence[Feedback]) -> int:
        """`add_signals` of feedback: idempotent by feedback_id, other content under a known id is a ConflictError."""

    def add_annotations(self, annotations: Sequence[Annotation]) -> int:
        """`add_signals` of annotations."""

    def add_signals(
        self, sent: Sequence[Reward | Feedback | Annotation], *, own_channel: str | None = None
    ) -> SignalsResult:
        """Store signals, all or none; a malformed one, or one that contradicts its target, is named and refuses all.

        Signals may come before their step or trajectory, and then wait for it: it makes no trajectory. What turns out
        to contradict its target when that comes becomes a dead letter. GoneError where the target was deleted.
        """

    def list_feedback(
        self,
        *,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        kind: FeedbackKind | None = None,
        source: str | None = None,
        name: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Feedback]:
        """One page in commit order: on this trajectory itself, on this step, or all; of this kind, source and name.

        A page of all that are of a kind, source or name looks at 10,000 at most, so one that has fewer than `limit`, or
        none, is the last only where it has no cursor.
        """

    def get_annotations(
        self,
        *,
        step_ids: Sequence[str] | None = None,
        trajectory_id: str | None = None,
        names: Sequence[str] | None = None,
    ) -> list[Annotation]:
        """Annotations with their arrays: of up to 1000 steps, or of a trajectory and all of its steps."""

    def awaited(self, *, cursor: str | None = None, limit: int = 100) -> Page[Awaited]:
        """Steps, then trajectories, that signals wait for, by id."""

    # --- groups -----------------------------------------------------------------------------------------------
    def get_group(self, group_id: str) -> Group:
        """NotFoundError where no trajectory has named it."""

    def list_groups(
        self,
        *,
        state: Literal["open", "closed"] | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Group]:
        """One page, by the creation of their first trajectory."""

    def close_due_groups(self) -> int:
        """Close the groups whose time is over; returns how many. Leases do this by themselves."""

    def events(
        self, after: int = 0, limit: int = 1000, *, trajectory_id: str | None = None, channel: str | None = None
    ) -> list[Event]:
        """Events with a sequence over `after`, in order; with `trajectory_id` or `channel` those about that trajectory,
        or about trajectories and groups of that channel, and what is told to all: new policies, pauses and their ends.
        """

    def follow(
        self, after: int = 0, *, timeout: float | None = None, kinds: Sequence[str] | None = None
    ) -> Iterator[Event]:
        """Events with a sequence over `after`, each once and in commit order, as they come; of `kinds` only, if given.

        Ends once none came for `timeout` seconds; None: never. PoolError where the pool is closed.
        """

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from any thread, after commits that hold events, until the returned function is called; after
        those of other processes on PostgreSQL only, so look every `poll_seconds` too.
        """

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

    def poisoned(self, consumer: str) -> list[PoisonedUnit]:
        """Units that were handed out `max_deliveries` times without being acknowledged, and are set aside."""

    def requeue(self, consumer: str, keys: Sequence[str]) -> int:
        """Hand poisoned units out again as if for the first time; returns how many of `keys` were poisoned."""

    def explain_unit(self, consumer: str, target_id: str, spec: BatchSpec | None = None) -> UnitExplanation:
        """Why the unit of a step, trajectory or group is, or is not, handed out to the consumer when it asks with
        `spec`, or as for its latest batch: the first reason. It hands nothing out. NotFoundError where nothing has
        that id.
        """

    def check_spec(self, consumer: str, spec: BatchSpec | None = None) -> SpecReport:
        """Whether the pool can give the consumer what it asks for with `spec`, or as for its latest batch, and what
        keeps the rest, with counts. It hands nothing out, and looks at the newest units within a budget.
        """

    def get_batch(self, batch_id: str) -> BatchRecord:
        """What is kept of a batch: its spec, state, times, units, and every reward as it was at the lease."""

    def list_batches(
        self,
        *,
        consumer: str | None = None,
        state: BatchState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[BatchRecord]:
        """One page of batches, the newest first, without their units."""

    def consumer(self, name: str) -> Consumer:
        """A named consumer of this pool."""

    # --- media and the end ------------------------------------------------------------------------------------
    def put_media(self, data: bytes, media_type: str) -> str:
        """Store a blob once; returns its digest, the hex BLAKE2b-128 of its bytes, which messages name it by."""

    def get_media(self, digest: str) -> Medium:
        """The blob of a digest, verified; NotFoundError where it is not there."""

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
