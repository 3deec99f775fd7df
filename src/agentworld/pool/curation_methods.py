"""The part of a pool that gates: policies and decisions, reviews, evaluations, and who follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.results import Page
from agentworld.records import (
    ActivePolicy,
    CurationPolicy,
    CurationPreview,
    Decision,
    Evaluation,
    EvaluationState,
    EvaluationTarget,
    Follower,
    NewReview,
    Review,
    ReviewState,
    ReviewVerdict,
    Standing,
)


class DecisionMethods(Protocol):
    """See Pool."""

    def set_curation(
        self, policy: CurationPolicy, *, source: str = "api", progress: Progress = no_progress
    ) -> ActivePolicy:
        """Put a policy in force for its channel, and decide everything that has ended there by it. What is served
        follows it when this returns; broken off, the next call, or leases bit by bit, go on. QueryError names the rule
        and the position of what cannot be read. From then on each write that touches what has ended decides anew in its
        own transaction. The same policy again changes nothing.
        """

    def clear_curation(self, channel: str, *, progress: Progress = no_progress) -> bool:
        """Take the channel's policy and all that it decided away; False where there was none. Broken off, the same
        call, or leases of that channel bit by bit, go on.
        """

    def curation(self, channel: str | None = None) -> list[ActivePolicy]:
        """The policies in force, by channel."""

    def list_curations(self, channel: str | None = None, *, limit: int = 100) -> list[ActivePolicy]:
        """Policies that are or were in force, the latest first."""

    def try_curation(
        self, policy: CurationPolicy, *, samples: int = 5, limit: int | None = None, progress: Progress = no_progress
    ) -> CurationPreview:
        """What a policy would decide, with nothing changed; of the latest `limit` trajectories, or of all."""

    def decide(self, decisions: Sequence[Decision]) -> int:
        """Manual decisions, all or none; returns how many changed something. What the next lease serves follows them.

        exclude: not served, with the reason. ready: the policy does not keep it back. review: kept back, and asked
        for. None takes the manual decision back. NotFoundError where the target is not there. What is excluded for how
        it came to be (quarantined, late, superseded, failed) stays excluded.
        """

    def decisions(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> list[Decision]:
        """Decisions on a trajectory and on its steps, or on one step: manual ones and the policy's."""

    def explain_standing(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> Standing:
        """Why it is served or not, and which rule decided."""


class ReviewMethods(Protocol):
    """See Pool."""

    def add_reviews(self, reviews: Sequence[NewReview]) -> int:
        """Ask for reviews, all or none; returns how many changed something. What was resolved is not asked again
        unless it comes with another reason. NotFoundError where the target is not there.
        """

    def list_reviews(
        self,
        *,
        state: ReviewState | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Review]:
        """One page, the highest worth first, then the oldest."""

    def get_review(self, review_id: int) -> Review:
        """NotFoundError where there is none."""

    def claim_review(self, by: str, *, channel: str | None = None, seconds: float = 600.0) -> Review | None:
        """The open review of the highest worth that `by` has not skipped, theirs for so long; again, the same one,
        for longer. None where there is none."""

    def skip_review(self, review_id: int, by: str) -> Review:
        """Give a claimed review back; `by` is not asked it again."""

    def resolve_review(self, review_id: int, by: str, verdict: ReviewVerdict, comment: str | None = None) -> Review:
        """accept decides `ready`, reject `exclude`, as a manual decision in the same transaction. ConflictError where
        somebody else has claimed it, or it was resolved otherwise.
        """

    def undo_review(self, review_id: int, by: str) -> Review:
        """Take a verdict and its decision back; the review is open again."""


class EvaluationMethods(Protocol):
    """See Pool."""

    def put_evaluations(self, evaluations: Sequence[Evaluation]) -> int:
        """Keep the latest of each evaluator and target; returns how many are kept: those whose target is there. The
        rewards are set apart, by `add_signals`.
        """

    def list_evaluations(
        self,
        *,
        evaluator: str | None = None,
        target: EvaluationTarget | None = None,
        target_id: str | None = None,
        state: EvaluationState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Evaluation]:
        """One page, by commit order. `target` and `target_id` go together."""

    def known_evaluations(self, fingerprint: bytes, contents: Sequence[bytes]) -> dict[bytes, Evaluation]:
        """By content, what that evaluator said of up to 1000 contents, whatever the target; but for failures."""

    def load_follower(self, name: str) -> Follower | None:
        """Where a follower is, or None where it has saved nothing."""

    def save_follower(self, name: str, position: int, state: bytes | None = None, *, revision: int = 0) -> Follower:
        """Save where it is; `revision` is that of what it loaded or saved last, 0 at first. ConflictError where another
        process has saved under the name since: two must not follow under one name.
        """


class CurationMethods(DecisionMethods, ReviewMethods, EvaluationMethods, Protocol):
    """See Pool."""
