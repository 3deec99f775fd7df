"""The states of a lease and of a unit, and which calls change them; letters as in docs/pool.md.

    (a) available -> leased          lease
    (b) leased -> available          release
    (c) leased -> available          the deadline passes; units go back when the next lease is asked for
    (d) leased -> available          resume with the batch not among the applied
    (e) leased -> acknowledged       ack with the lease's epoch before the deadline
    (f) leased -> acknowledged       resume with the batch among the applied
    (g) available -> acknowledged    resume with the batch among the applied, though it expired or was released: all
                                     that is not acknowledged yet, is, even where a later lease of the same consumer had
                                     taken it, since (d) comes first
    (h) available -> dropped         a lease finds the unit staler than its `max_staleness`, or its group all equal in
                                     `skip_equal`; final for this consumer
    (i) available -> poisoned        a lease finds that the unit was handed out `max_deliveries` times
    (j) poisoned -> available        requeue, with its count of deliveries at 0
    (k) poisoned -> acknowledged     resume with a batch among the applied that held the unit

A batch is `leased`, then `acked`, `released` or `expired`. An epoch is a number per consumer that grows with every
lease and every resume. A call with another epoch than the lease's own is refused, as is an acknowledgement after (b),
(c) or (d).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from agentworld.errors import InvalidRequestError, QueryError, StaleLeaseError
from agentworld.query import conditions, parse
from agentworld.records import BatchSpec, Readiness, check_id
from agentworld.records.methods import METHODS, STEP_REWARD, required_by
from agentworld.records.step import LogprobSpace

LeaseState = Literal["leased", "acked", "released", "expired"]
LEASE_STATES: tuple[LeaseState, ...] = ("leased", "acked", "released", "expired")
UnitState = Literal["available", "leased", "acknowledged", "dropped", "poisoned"]
# Units in these states are not handed out again.
FINAL_STATES: tuple[UnitState, ...] = ("acknowledged", "dropped", "poisoned")
REQUIREMENTS = ("tokens", "logprobs", "messages", "reward", STEP_REWARD)
KEYED_REQUIREMENTS = ("annotation", "label", "logprob_space")
SPACE = "logprob_space."
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
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


def check_spec(spec: BatchSpec, consumer: str) -> tuple[BatchSpec, tuple[str, ...]]:
    """The spec with its numbers filled in, and what each step must have; InvalidRequestError where it means nothing."""
    if not isinstance(spec, BatchSpec):
        raise InvalidRequestError(f"a {type(spec).__name__} is no BatchSpec", path="spec")
    check_id(consumer, "consumer")
    spec = spec.resolved()
    if spec.where is not None:
        asked = parse(spec.where, "steps" if spec.unit == "step" else "trajectories")
        if any(leaf.field.field.name == "review" for leaf in conditions(asked)):
            # A verdict that changes nothing else of a trajectory tells no consumer to look at it again.
            raise QueryError(
                "review is no field of batches",
                path="where",
                hint="What a rule sends to review is not served before; label what is accepted, and ask for the label",
            )
    return spec, requirements(spec)


def check_names(names: Sequence[str], path: str) -> list[str]:
    """The names, each once; InvalidRequestError where it is no list of texts, but one text, say."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidRequestError(f"{path} must be a list of texts, not a {type(names).__name__}", path=path)
    found = list(dict.fromkeys(names))
    for name in found:
        if not isinstance(name, str):
            raise InvalidRequestError(f"{path} must hold texts, not a {type(name).__name__}", path=path)
    return found


def check_batch_state(state: str | None, path: str = "state") -> None:
    """InvalidRequestError where there is no such state of a batch."""
    if state is not None and state not in LEASE_STATES:
        raise InvalidRequestError(f"no batch is {state!r}", path=path, hint=f"Known: {', '.join(LEASE_STATES)}")


def empty_resumption() -> dict[str, list[str]]:
    """The result of resume, to be filled."""
    return {"acknowledged": [], "released": [], "unknown": []}


def requirements(spec: BatchSpec) -> tuple[str, ...]:
    """What every step of a unit must have: the method's needs and the spec's `require`, each once and checked.

    Log-probability spaces that are named become one requirement, `logprob_space.raw|temperature`: any of them will do.
    """
    for name in spec.require:
        kind, _, key = name.partition(".")
        if name.startswith(SPACE):
            check_spaces(key.split("|"))
            continue
        if name not in REQUIREMENTS and (kind not in KEYED_REQUIREMENTS or not _KEY.fullmatch(key)):
            raise InvalidRequestError(
                f"unknown requirement {name!r}",
                path="require",
                hint=f"Known: {', '.join(REQUIREMENTS)}, {', '.join(f'{kind}.NAME' for kind in KEYED_REQUIREMENTS)}",
            )
    needs = required_by(spec.method, spec.require)
    spaces = sorted({space for need in needs if need.startswith(SPACE) for space in spaces_of(need)})
    rest = tuple(need for need in needs if not need.startswith(SPACE))
    return (*rest, SPACE + "|".join(spaces)) if spaces else rest


def spaces_of(need: str) -> list[str]:
    """The log-probability spaces of a requirement `logprob_space.A|B`."""
    return need.removeprefix(SPACE).split("|")


def check_spaces(names: Sequence[str]) -> None:
    """InvalidRequestError where one of them is no log-probability space."""
    known = get_args(LogprobSpace)
    for name in names:
        if name not in known:
            raise InvalidRequestError(
                f"there is no log-probability space {name!r}", path="require", hint=f"Known: {', '.join(known)}"
            )


def required_annotations(needs: Sequence[str]) -> list[str]:
    """The names of the annotations among the requirements."""
    return [name.partition(".")[2] for name in needs if name.startswith("annotation.")]


def wanted_readiness(spec: BatchSpec) -> tuple[Readiness, ...]:
    """Comparisons, and methods that need no primary reward, take trajectories with or without one, all else only
    rewarded ones.
    """
    method = METHODS.get(spec.method)
    if ((method is not None and not method.rewarded) or spec.unit == "pair") and "reward" not in spec.require:
        return ("complete", "ready")
    return ("ready",)


def _check_epoch(batch_id: str, own_epoch: int, epoch: int) -> None:
    if epoch != own_epoch:
        raise _stale(batch_id, f"has epoch {own_epoch}, not {epoch}")


def _stale(batch_id: str, what: str) -> StaleLeaseError:
    return StaleLeaseError(f"batch {batch_id!r} {what}", path="epoch", hint="Drop the batch and lease anew")
