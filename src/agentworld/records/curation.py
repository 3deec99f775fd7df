"""What curation decides of steps and trajectories, what people are asked to review, and what evaluators said."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.records.step import Readiness

Verdict = Literal["ready", "exclude", "review"]
DecidedBy = Literal["manual", "policy"]
ReviewOrigin = Literal["rule", "disagreement", "uncertainty", "manual"]
ReviewState = Literal["open", "claimed", "done", "withdrawn"]
ReviewVerdict = Literal["accept", "reject"]
EvaluationState = Literal["ok", "failed"]
EvaluationTarget = Literal["step", "trajectory", "group"]


class CurationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Ordered rules that decide what of a channel is served; see `agentworld.query.rules` for their language.

    `default`: what happens with what no rule decides. `name` is for people; it is no part of the version.
    """

    rules: tuple[str, ...]
    name: str = "policy"
    channel: str = "train"
    default: Verdict = "ready"


class ActivePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy as a pool keeps it. `version`: digest of its rules and default, 16 hexadecimal digits.

    `ended_at`: when another took its place, or none. `pending`: about how many trajectories are still to be decided
    by it (or, where it has ended with none after it, to be freed of it); 0 in force throughout.
    """

    policy: CurationPolicy
    version: str
    source: str
    created_at: float
    ended_at: float | None = None
    pending: int = 0


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided of one trajectory, or of one step (`step_id`), by people (`manual`) or by the policy.

    A manual decision stands over the policy's. `verdict` None: nothing but tags and weight; sent by a person: takes the
    manual decision back. `rule`: number of the rule that decided, from 1; None where the default did, or a person.
    """

    verdict: Verdict | None
    trajectory_id: str | None = None
    step_id: str | None = None
    reason: str | None = None
    by: DecidedBy = "manual"
    rule: int | None = None
    policy: str | None = None
    tags: tuple[str, ...] = ()
    weight: float | None = None
    source: str = "api"
    at: float = 0.0


class RuleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One rule on one step or trajectory. `holds` is None where the reading had ended before it."""

    number: int
    rule: str
    subject: Literal["steps", "trajectories"]
    holds: bool | None
    decided: bool


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Why a step or trajectory is, or is not, served: `agentworld curate explain`.

    `reasons`: all that keep it from being ready, in the words of its record. `decisions`: on it and, for a step, on its
    trajectory. `rules`: the active policy's, as they hold now. `failures`: evaluators that failed on it, with why.
    """

    trajectory_id: str
    step_id: str | None
    readiness: Readiness
    reasons: tuple[str, ...]
    decisions: tuple[Decision, ...]
    policy: str | None
    rules: tuple[RuleOutcome, ...]
    failures: dict[str, str]


class CurationPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy would do, with nothing changed. Counts are of ended trajectories and their steps.

    `by_rule`: rule number (0: default) to how many it decides, or tags or weighs; of trajectories, and of steps for
    rules about steps. `changes`: how many trajectories go from one readiness to another, as "ready -> excluded".
    `samples`: up to a few ids by rule number. `whole`: whether all were looked at, or the budget ended it.
    """

    version: str
    trajectories: int
    steps: int
    by_rule: dict[int, int]
    changes: dict[str, int]
    samples: dict[int, list[str]]
    whole: bool


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory or step that somebody should look at. `worth`: higher is asked first.

    `state` claimed: somebody has it until `claimed_until`, in seconds since the epoch; then it is open again.
    """

    review_id: int
    channel: str
    origin: ReviewOrigin
    reason: str
    worth: float
    state: ReviewState
    created_at: float
    trajectory_id: str | None = None
    step_id: str | None = None
    claimed_by: str | None = None
    claimed_until: float | None = None
    skipped_by: tuple[str, ...] = ()
    verdict: ReviewVerdict | None = None
    resolved_by: str | None = None
    comment: str | None = None
    resolved_at: float | None = None


class NewReview(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be looked at. One that is open on the same target takes the higher worth, and the new reason."""

    reason: str
    trajectory_id: str | None = None
    step_id: str | None = None
    origin: ReviewOrigin = "manual"
    worth: float = 0.5


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The latest that an evaluator said of a step, a trajectory or a group: named values, or why it failed.

    `fingerprint`: digest of the evaluator's version and configuration; `content`: of what it read; 16 bytes each.
    Another target of the same content has the same values without being evaluated. `values`: up to 1,000.
    `seconds`: how long it took; `at`: when it was said, seconds since 1970.
    """

    evaluator: str
    target: EvaluationTarget
    target_id: str
    fingerprint: bytes
    content: bytes
    state: EvaluationState
    values: dict[str, float] = {}
    details: Any = None
    error: str | None = None
    attempts: int = 1
    seconds: float | None = None
    at: float = 0.0


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """How far one who follows the pool has come: `position` is the last event's sequence that it is done with.

    `state`: what it keeps besides, up to 64 MiB. `revision` is what `save_follower` must be given next.
    """

    name: str
    position: int
    state: bytes | None
    revision: int
    at: float
