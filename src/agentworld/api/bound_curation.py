"""What a key that is bound to one channel or one trajectory may do of curation: see agentworld.api.bound_pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from agentworld.errors import ForbiddenError, NotFoundError
from agentworld.gateway.access import Grant
from agentworld.pool.decision_rules import check_decisions, check_one_subject, check_policy
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Page, Pool
from agentworld.pool.review_rules import check_evaluated, check_reviews
from agentworld.records import (
    ActivePolicy,
    CurationPolicy,
    CurationPreview,
    Decision,
    Evaluation,
    EvaluationState,
    EvaluationTarget,
    NewReview,
    Review,
    ReviewState,
    ReviewVerdict,
    Standing,
)

if TYPE_CHECKING:
    _Base = Pool  # So that its methods are held to the signatures of the protocol.
else:
    _Base = object  # So that no method that it lacks is there to be called, and do nothing.


class BoundCuration(_Base):
    """The part of a bound pool that is about curation. A policy is put in force by nobody who is bound, as it changes
    what everybody is served.
    """

    _pool: Pool
    _grant: Grant

    # --- policies, for keys of a channel ----------------------------------------------------------------------
    def curation(self, channel: str | None = None) -> list[ActivePolicy]:
        """See Pool."""
        return self._pool.curation(self._own_channel(channel))

    def list_curations(self, channel: str | None = None, *, limit: int = 100) -> list[ActivePolicy]:
        """See Pool."""
        return self._pool.list_curations(self._own_channel(channel), limit=limit)

    def try_curation(
        self, policy: CurationPolicy, *, samples: int = 5, limit: int | None = None, progress: Progress = no_progress
    ) -> CurationPreview:
        """See Pool."""
        self._own_channel(check_policy(policy).channel)
        return self._pool.try_curation(policy, samples=samples, limit=limit, progress=progress)

    # --- decisions --------------------------------------------------------------------------------------------
    def decide(self, decisions: Sequence[Decision]) -> int:
        """See Pool. What is not the caller's is not there; an agent decides nothing of itself."""
        self._check_judge()
        sent = check_decisions(decisions)
        for target, target_id, _ in sent:
            self._check_target(target, target_id)
        return self._pool.decide([one for _, _, one in sent])

    def decisions(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> list[Decision]:
        """See Pool."""
        self._check_target(*check_one_subject(trajectory_id, step_id))
        return self._pool.decisions(trajectory_id=trajectory_id, step_id=step_id)

    def explain_standing(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> Standing:
        """See Pool."""
        self._check_target(*check_one_subject(trajectory_id, step_id))
        return self._pool.explain_standing(trajectory_id=trajectory_id, step_id=step_id)

    # --- reviews ----------------------------------------------------------------------------------------------
    def add_reviews(self, reviews: Sequence[NewReview]) -> int:
        """See Pool. What is not the caller's is not there."""
        sent = check_reviews(reviews)
        for target, target_id, _ in sent:
            self._check_target(target, target_id)
        return self._pool.add_reviews([one for _, _, one in sent])

    def list_reviews(
        self,
        *,
        state: ReviewState | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Review]:
        """See Pool. Of a trajectory's key, a page can be short, and still have a next_cursor to go on."""
        if channel is not None:
            self._grant.check_channel(channel, "what is asked for")
        page = self._pool.list_reviews(state=state, channel=channel or self._grant.channel, cursor=cursor, limit=limit)
        return msgspec.structs.replace(page, items=[one for one in page.items if self._is_own(one)])

    def get_review(self, review_id: int) -> Review:
        """See Pool."""
        found = self._pool.get_review(review_id)
        if not self._is_own(found):
            raise NotFoundError(f"no review {review_id}", path="review_id")
        return found

    def claim_review(self, by: str, *, channel: str | None = None, seconds: float = 600.0) -> Review | None:
        """See Pool. For keys of a channel."""
        return self._pool.claim_review(by, channel=self._own_channel(channel), seconds=seconds)

    def skip_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        self._check_judge()
        self.get_review(review_id)
        return self._pool.skip_review(review_id, by)

    def resolve_review(self, review_id: int, by: str, verdict: ReviewVerdict, comment: str | None = None) -> Review:
        """See Pool."""
        self._check_judge()
        self.get_review(review_id)
        return self._pool.resolve_review(review_id, by, verdict, comment)

    def undo_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        self._check_judge()
        self.get_review(review_id)
        return self._pool.undo_review(review_id, by)

    # --- evaluations ------------------------------------------------------------------------------------------
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
        """See Pool. Of a target only; a trajectory's key has that trajectory as its own."""
        check_evaluated(target, target_id, state)
        if target is None and self._grant.trajectory_id is not None:
            target, target_id = "trajectory", self._grant.trajectory_id
        if target is None or target_id is None:
            raise ForbiddenError(
                f"this key is for {place(self._grant)} alone",
                path="target_id",
                hint="Name the step, trajectory or group",
            )
        if target == "group":
            self.get_group(target_id)
        else:
            self._check_target(target, target_id)
        return self._pool.list_evaluations(
            evaluator=evaluator, target=target, target_id=target_id, state=state, cursor=cursor, limit=limit
        )

    # --- what is the caller's ---------------------------------------------------------------------------------
    def _own_channel(self, channel: str | None) -> str | None:
        """The channel of a key that is bound to one; ForbiddenError for those of a trajectory."""
        if self._grant.trajectory_id is not None:
            raise whole(self._grant, "a whole channel")
        if channel is not None:
            self._grant.check_channel(channel, "what is asked for")
        return self._grant.channel

    def _check_judge(self) -> None:
        """ForbiddenError for an agent, which would otherwise let pass what the policy keeps back of it."""
        if self._grant.of_agent:
            raise ForbiddenError(
                "the key of an agent's own trajectory decides nothing about it",
                path="authorization",
                hint="Decide and review with a key that `agentworld keys create` made",
            )

    def _check_target(self, target: str, target_id: str) -> None:
        """NotFoundError where it is not the caller's. A step stands with its trajectory, so both have to be."""
        if target == "step":
            trajectory_id = self.get_step(target_id, include=()).trajectory_id
            if not self._grant.covers(self._pool.get_trajectory(trajectory_id)):
                raise NotFoundError(f"no step {target_id!r}", path="step_id")
        else:
            self.get_trajectory(target_id)

    def _is_own(self, review: Review) -> bool:
        return self._grant.channel in (None, review.channel) and self._grant.trajectory_id in (
            None,
            review.trajectory_id,
        )


def place(grant: Grant) -> str:
    """What a bound key is for, in words."""
    return (
        f"the trajectory {grant.trajectory_id!r}"
        if grant.trajectory_id is not None
        else f"the channel {grant.channel!r}"
    )


def whole(grant: Grant, what: str) -> ForbiddenError:
    """The error for what is about more than a bound key is for."""
    hint = "Use a key that is bound to no channel and no trajectory"
    message = f"this is about {what}, and this key is for {place(grant)} alone"
    return ForbiddenError(message, path="authorization", hint=hint)
