"""What the methods of a pool return beside records."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from agentworld.pool.stats import PoolStats
from agentworld.records import BatchSpec, Policy, Unit

__all__ = [
    "AppendResult",
    "Awaited",
    "DeadLetter",
    "Drain",
    "GatewayState",
    "GatewayWorker",
    "Page",
    "PoolStats",
    "Rejected",
    "SignalsResult",
    "SpecFinding",
    "SpecReport",
    "UnitExplanation",
    "UnitReason",
    "sequence_page",
]

T = TypeVar("T")
Outcome = Literal["stored", "duplicate", "conflict", "late", "rejected"]


class AppendResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one step of a batch; a rejected or conflicting one does not fail the others.

    stored: new. duplicate: the same content was there under this id. conflict: other content is there under this id,
    which stays. late: stored, but its trajectory had ended, so it is excluded. rejected: not stored, `reason` says why.
    """

    step_id: str
    outcome: Outcome
    step_index: int | None = None
    reason: str | None = None


class Page(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """One page of a listing; `next_cursor` is null on the last.

    `partial`: the search ended because it had looked at as many rows, or for as long, as one page may; there can be
    more before the page is full, so go on with `next_cursor`. `scanned`: how many rows a search looked at; null where
    the listing is none.
    """

    items: list[T]
    # A default that is made is written out, so that JSON has null on the last page.
    next_cursor: str | None = msgspec.field(default_factory=lambda: None)
    partial: bool = False
    scanned: int | None = None


def sequence_page(items: list[T], limit: int) -> Page[T]:
    """A page of records with a `sequence`; its cursor, where the page is full, is the `after` of the next."""
    last: Any = items[-1] if items else None
    return Page(items, str(last.sequence) if last is not None and len(items) == limit else None)


class DeadLetter(msgspec.Struct, frozen=True):
    """What could not be stored: why, and what was sent (JSON, broken characters escaped, cut at 64 KiB).

    `kind`: a step, or a reward, feedback or annotation that waited for its step and then contradicted it; ids that it
    did not name are empty.
    """

    sequence: int
    step_id: str
    trajectory_id: str
    reason: str
    record: str
    at: float
    kind: str = "step"


class Rejected(msgspec.Struct, frozen=True):
    """A record that cannot become a step, given to a pool in its place: it becomes a dead letter, and its result is
    `rejected` with this reason. `record`: what was sent, as text; ids that it did not name are empty.
    """

    reason: str
    record: str
    step_id: str = ""
    trajectory_id: str = ""


class SignalsResult(msgspec.Struct, frozen=True):
    """What became of rewards, feedback or annotations: `changed`: how many changed something (sending one again does
    not); `set`: how many are on a target that is there; `waiting`: the ids of targets that are not there yet.
    """

    changed: int
    set: int
    waiting: list[str] = []


class Awaited(msgspec.Struct, frozen=True):
    """A step or trajectory that signals wait for; `since`: when the first came, in seconds since the epoch."""

    kind: Literal["step", "trajectory"]
    id: str
    since: float


class GatewayState(msgspec.Struct, frozen=True):
    """Shared server state that is read at dispatch. `pauses`: how often there was a pause, the present one included."""

    policies: dict[str, Policy]
    paused: bool = False
    pauses: int = 0


class GatewayWorker(msgspec.Struct, frozen=True):
    """One worker process of a gateway, as it last said of itself at `seen_at` (seconds since the epoch). `in_flight`:
    its calls that are at an engine or on their way into the pool; `pauses`: of how many pauses it knows.
    """

    worker: str
    in_flight: int
    pauses: int
    seen_at: float


class Drain(msgspec.Struct, frozen=True):
    """Whether the gateways are paused and none of their live workers has a call in flight. `in_flight`: the calls that
    they have; `unaware`: how many of the `workers` have not said yet that they know of the pause.
    """

    drained: bool
    workers: int
    in_flight: int
    unaware: int


UnitReason = Literal[
    "fits",
    "leased",
    "acknowledged",
    "dropped",
    "poisoned",
    "channel",
    "no_group",
    "no_pair",
    "no_steps",
    "group_open",
    "too_few",
    "readiness",
    "excluded",
    "masked",
    "lacks",
    "where",
    "stale",
    "equal",
    "waits",
]


class UnitExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a unit is, or is not, handed out to a consumer that asks with `spec`: the first reason, and what it means.

    `served`: it fits, and comes as the order has it. `deliveries`: how often the consumer has had it. `batch_id` and
    `deadline` (seconds since the epoch): of the batch that holds it, or that it was acknowledged with. `cause`: of
    too_few and of a pair, what keeps most of its trajectories. `need`: what is missing, where something is.
    """

    consumer: str
    unit: Unit
    key: str
    channel: str
    served: bool
    reason: UnitReason
    message: str
    deliveries: int = 0
    batch_id: str | None = None
    deadline: float | None = None
    cause: UnitReason | None = None
    need: str | None = None
    spec: BatchSpec


class SpecFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps some units from a consumer: `reason` as of a unit, and `need` where something is missing.

    `units`: how many of those that were looked at. `message` says it with its counts, `hint` what to do, `example` is
    the key of one of them.
    """

    reason: UnitReason
    need: str | None = None
    units: int
    message: str
    hint: str
    example: str


class SpecReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a pool can give a consumer what it asks for with `spec`, before it leases.

    `satisfied`: enough units fit for a batch; null where the look ended before so many were found. `fitting`: units
    that fit, of the `looked_at` newest; `wanted`: the fewest that make a batch. `findings`: what keeps the others, the
    most frequent first. `notes`: what the method asks for beyond single units. `stopped`: why it looked no further;
    null where it saw all.
    """

    consumer: str
    method: str
    unit: Unit
    channel: str
    satisfied: bool | None
    wanted: int
    fitting: int
    looked_at: int
    findings: list[SpecFinding]
    notes: list[str] = []
    stopped: str | None = None
    spec: BatchSpec
