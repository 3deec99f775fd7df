"""The states of a lease, and which calls each allows; letters as in docs/architecture.md, where (a) is the lease.

    (b) leased -> released   release
    (c) leased -> expired    the deadline passes; units go back when the next lease is asked for
    (d) leased -> released   resume with the batch not among the applied
    (e) leased -> acked      ack with the lease's epoch before the deadline
    (f) leased -> acked      resume with the batch among the applied
    (g) expired, released -> acked   resume with the batch among the applied: all that is not acknowledged yet, is, even
                                     where a later lease of the same consumer had taken it, since (d) comes first

An epoch is a number per consumer that grows with every lease and every resume. A call with another epoch than the
lease's own is refused, as is an acknowledgement after (b), (c) or (d).
"""

from __future__ import annotations

from typing import Literal

from agentworld.errors import InvalidRequestError, StaleLeaseError
from agentworld.records import BatchSpec, Readiness

LeaseState = Literal["leased", "acked", "released", "expired"]
LEASE_STATES: tuple[LeaseState, ...] = ("leased", "acked", "released", "expired")
REQUIREMENTS = ("tokens", "logprobs", "messages", "reward")
_LONGEST_LEASE = 7 * 86_400


def check_ack(batch_id: str, own_epoch: int, epoch: int, state: LeaseState) -> bool:
    """Whether the batch is to be acknowledged now; False where it is already."""
    _check_epoch(batch_id, own_epoch, epoch)
    if state == "acked":
        return False
    if state != "leased":
        raise _stale(batch_id, f"was {state}")
    return True


def check_release(batch_id: str, own_epoch: int, epoch: int, state: LeaseState) -> bool:
    """Whether the batch is to be released now; False where its units are back already."""
    _check_epoch(batch_id, own_epoch, epoch)
    if state == "acked":
        raise _stale(batch_id, "was acked")
    return state == "leased"


def check_extend(batch_id: str, own_epoch: int, epoch: int, state: LeaseState, seconds: float) -> None:
    """StaleLeaseError where the lease is over."""
    if not 0 < seconds <= _LONGEST_LEASE:
        raise InvalidRequestError(f"seconds must be over 0 and at most {_LONGEST_LEASE}", path="seconds")
    _check_epoch(batch_id, own_epoch, epoch)
    if state != "leased":
        raise _stale(batch_id, f"was {state}")


def empty_resumption() -> dict[str, list[str]]:
    """The result of resume, to be filled."""
    return {"acknowledged": [], "released": [], "unknown": []}


def requirements(spec: BatchSpec) -> tuple[str, ...]:
    """What every step of a unit must have: the spec's `require`, or tokens."""
    for name in spec.require:
        if name not in REQUIREMENTS:
            raise InvalidRequestError(
                f"unknown requirement {name!r}", path="require", hint=f"Known: {', '.join(REQUIREMENTS)}"
            )
    return spec.require or ("tokens",)


def wanted_readiness(spec: BatchSpec) -> tuple[Readiness, ...]:
    """Supervised training takes trajectories with or without a reward, every other method only rewarded ones."""
    if spec.method == "sft" and "reward" not in spec.require:
        return ("complete", "ready")
    return ("ready",)


def _check_epoch(batch_id: str, own_epoch: int, epoch: int) -> None:
    if epoch != own_epoch:
        raise _stale(batch_id, f"has epoch {own_epoch}, not {epoch}")


def _stale(batch_id: str, what: str) -> StaleLeaseError:
    return StaleLeaseError(f"batch {batch_id!r} {what}", path="epoch", hint="Drop the batch and lease anew")
