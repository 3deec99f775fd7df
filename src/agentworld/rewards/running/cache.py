"""Verdicts as the pool keeps them for evaluations of the same content, and back."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import msgspec

from agentworld.errors import AgentWorldError
from agentworld.pool.review_rules import MAX_DETAILS, MAX_ERROR
from agentworld.records import Evaluation, digest, exact_json
from agentworld.rewards.fingerprint import subject_fingerprint
from agentworld.rewards.protocol import Evaluator, RolloutGroup, Subject, Verdict

Target = Literal["trajectory", "group"]
_PARTS = {"group": "members", "step": "steps"}


class Outcome(NamedTuple):
    """What became of one evaluation: verdicts, or the error. `attempts` is 0 where the evaluator was not asked.

    `stands`: the pool has this evaluation of this target. `due`: of a dry run, it would have to be evaluated. `echoed`:
    its group had it evaluated just before, in this run, and that was told.
    """

    verdicts: dict[str, Verdict] | None
    error: str | None
    content: bytes
    attempts: int = 1
    seconds: float = 0.0
    cached: bool = False
    stands: bool = False
    due: bool = False
    echoed: bool = False


class _Said(msgspec.Struct, frozen=True):
    """A verdict within the details of an evaluation."""

    values: dict[str, float]
    details: dict[str, Any] = {}


def content_of(evaluator: Evaluator, subject: Subject, known: dict[str, list[bytes]]) -> bytes:
    """Digest of what the evaluator may read, 16 bytes. `known`: digests of the same steps, by trajectory id."""
    return bytes.fromhex(subject_fingerprint(evaluator, subject, known))


def target_of(subject: Subject) -> tuple[Target, str]:
    """What is judged, by kind and id."""
    if isinstance(subject, RolloutGroup):
        return "group", subject.group_id
    return "trajectory", subject.trajectory.trajectory_id


def evaluations_of(evaluator: Evaluator, fingerprint: bytes, subject: Subject, outcome: Outcome) -> list[Evaluation]:
    """What the pool is to keep: of the subject and, for a group, of each member, which tells why it has no reward.

    The values of a group's and of a steps' evaluation are means; each one's own are in the details.
    """
    target, target_id = target_of(subject)
    error = None if outcome.verdicts is not None else (outcome.error or "failed")[:MAX_ERROR]
    whole = Evaluation(
        evaluator=evaluator.name,
        target=target,
        target_id=target_id,
        fingerprint=fingerprint,
        content=outcome.content,
        state="ok" if error is None else "failed",
        values=_values(evaluator, outcome.verdicts),
        details=_details(evaluator, outcome.verdicts),
        error=error,
        attempts=outcome.attempts,
        seconds=None if outcome.cached else outcome.seconds,
    )
    if not isinstance(subject, RolloutGroup):
        return [whole]
    members = []
    for member in subject.members:
        own = member.trajectory.trajectory_id
        verdict = (outcome.verdicts or {}).get(own)
        record = msgspec.structs.replace(
            whole,
            target="trajectory",
            target_id=own,
            # Its own, so that nobody takes it for what was said of the group.
            content=digest(b"member", outcome.content, own.encode()),
            values=verdict.values if verdict is not None else {},
            details=_bounded(verdict.details) if verdict is not None else None,
        )
        members.append(record)
    return [whole, *members]


def verdicts_of(evaluator: Evaluator, subject: Subject, known: Evaluation) -> dict[str, Verdict] | None:
    """The verdicts of an evaluation that is known, on this subject of the same content; None where not all was kept."""
    if evaluator.scope == "trajectory":
        return {target_of(subject)[1]: Verdict(known.values, known.details or {})}
    kept = known.details.get(_PARTS[evaluator.scope]) if isinstance(known.details, dict) else None
    try:
        said = msgspec.convert(kept, dict[str, _Said])
    except msgspec.ValidationError:
        return None
    return {target: Verdict(each.values, each.details) for target, each in said.items()}


def _values(evaluator: Evaluator, verdicts: dict[str, Verdict] | None) -> dict[str, float]:
    if not verdicts:
        return {}
    if evaluator.scope == "trajectory":
        return next(iter(verdicts.values())).values
    found: dict[str, list[float]] = {}
    for verdict in verdicts.values():
        for name, value in verdict.values.items():
            found.setdefault(name, []).append(value)
    means = {name: math.fsum(each) / len(each) for name, each in found.items()}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}


def _details(evaluator: Evaluator, verdicts: dict[str, Verdict] | None) -> Any:
    if verdicts is None:
        return None
    if evaluator.scope == "trajectory":
        return _bounded(next(iter(verdicts.values())).details)
    part = _PARTS[evaluator.scope]
    whole = {part: {target: {"values": each.values, "details": each.details} for target, each in verdicts.items()}}
    if _fits(whole):
        return whole
    bare = {part: {target: {"values": each.values} for target, each in verdicts.items()}, "details_left_out": True}
    return bare if _fits(bare) else {"left_out": True}


def _bounded(details: dict[str, Any]) -> dict[str, Any] | None:
    return (details if _fits(details) else {"left_out": True}) if details else None


def _fits(details: Any) -> bool:
    try:
        return len(exact_json.encode(details)) <= MAX_DETAILS
    except (AgentWorldError, TypeError, ValueError):
        return False
