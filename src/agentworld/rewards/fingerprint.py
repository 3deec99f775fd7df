"""Names for results that can be used again: the same evaluator over the same content says the same.

Ids, times and stored signals are left out, so that a copy of a trajectory is the same content; a group's and a step's
verdicts are kept by id, so there the ids belong to it. Code of yours may read whatever a record says, so for that more
of it counts: all but its ids, times, rewards that it does not need, and where the record stands.
"""

from __future__ import annotations

import msgspec

from agentworld.records import BatchTrajectory, digest, exact_json
from agentworld.rewards.protocol import FAILED_LABEL, Evaluator, RolloutGroup, Subject

_ENCODER = msgspec.json.Encoder(order="deterministic")
# Of a step, what an evaluator may read of its content.
_STEP = (
    "step_index",
    "agent",
    "model",
    "prompt_messages",
    "tools",
    "response_message",
    "finish_reason",
    "prompt_ids",
    "response_ids",
    "response_mask",
    "prompt_length",
    "response_length",
    "metadata",
)
_TRAJECTORY = (
    "task",
    "agent",
    "channel",
    "metadata",
    "status",
    "step_count",
    "prompt_tokens",
    "response_tokens",
)
# And of both, what code of yours may read.
_STEP_RECORD = (
    *("choice_index", "fork_reason", "requested_model", "policy", "version_spans", "dialect"),
    *("token_source", "vocabulary", "response_logprobs", "logprob_space", "sampling", "usage", "labels"),
    *("excluded_reason", "late", "is_last", "latency_ms", "channel"),
)
_TRAJECTORY_RECORD = (
    *("group_id", "group_size", "rollout_index", "attempt", "user", "priority"),
    *("excluded_reason", "sampled_tokens", "policy"),
)


def evaluator_fingerprint(evaluator: Evaluator) -> str:
    """32 hex digits of name, version, scope and configuration; it changes with any of them."""
    facts = [evaluator.name, evaluator.version, evaluator.scope, evaluator.needs, evaluator.configuration]
    return digest(b"evaluator", _ENCODER.encode(msgspec.to_builtins(facts))).hex()


def subject_fingerprint(evaluator: Evaluator, subject: Subject, known: dict[str, list[bytes]] | None = None) -> str:
    """32 hex digits of what `evaluator` may read of `subject`: the content, and the rewards that it needs.

    `known`: digests of steps by trajectory id, taken from there and added to it, for several evaluators of one subject.
    """
    known = {} if known is None else known
    if isinstance(subject, RolloutGroup):
        parts = [_run(evaluator, member, known, with_ids=True) for member in subject.members]
        return digest(b"group", subject.group_id.encode(), *parts).hex()
    return _run(evaluator, subject, known, with_ids=evaluator.scope == "step").hex()


def _run(evaluator: Evaluator, run: BatchTrajectory, known: dict[str, list[bytes]], *, with_ids: bool) -> bytes:
    record = run.trajectory
    whole = _reads_records(evaluator)
    facts = [getattr(record, name) for name in _TRAJECTORY]
    if whole:
        facts += [getattr(record, name) for name in _TRAJECTORY_RECORD]
        # Evaluations leave these themselves.
        facts.append({name: value for name, value in record.labels.items() if not name.startswith(FAILED_LABEL)})
    needed = {name: record.rewards.get(name) for name in evaluator.needs}
    ids = [record.trajectory_id, *(step.step_id for step in run.steps)] if with_ids else []
    key = f"{record.trajectory_id}\0{whole}"
    steps = known.get(key)
    if steps is None:
        steps = known[key] = _steps(run, (*_STEP, *_STEP_RECORD) if whole else _STEP)
    return digest(b"trajectory", exact_json.encode([facts, needed, ids]), *steps)


def _reads_records(evaluator: Evaluator) -> bool:
    """Whether it, or the one that it asks of each step, may read more than content; who does not say so may."""
    return bool(getattr(getattr(evaluator, "inner", evaluator), "reads_records", True))


def _steps(run: BatchTrajectory, fields: tuple[str, ...]) -> list[bytes]:
    positions = {step.step_id: place for place, step in enumerate(run.steps)}
    return [
        digest(
            *(exact_json.encode(getattr(step, name)) for name in fields),
            str(positions.get(step.parent_step_id or "", -1)).encode(),
        )
        for step in run.steps
    ]
