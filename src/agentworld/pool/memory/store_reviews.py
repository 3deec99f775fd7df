"""Reviews of the in-memory store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.errors import NotFoundError
from agentworld.pool.base import check_limit
from agentworld.pool.decision_rules import Target, check_reason
from agentworld.pool.memory import decisions, groups
from agentworld.pool.memory import reviews as asking
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.pool.results import Page
from agentworld.pool.review_rules import (
    check_claim,
    check_mine,
    check_review_id,
    check_reviewer,
    check_reviews,
    check_state,
    check_undo,
    check_verdict,
    is_of_review,
    is_resolved_so,
    read_worth_cursor,
    resolution,
    shown,
    worth_cursor,
)
from agentworld.records import Decision, NewReview, Review, ReviewState, ReviewVerdict


class ReviewMethods(MemoryStore):
    """See agentworld.pool.curation_methods."""

    def add_reviews(self, reviews: Sequence[NewReview]) -> int:
        """See Pool."""
        sent = check_reviews(reviews)
        with self._open():
            for number, (target, target_id, _) in enumerate(sent):
                if target_id not in (self._state.steps if target == "step" else self._state.trajectories):
                    raise NotFoundError(f"no {target} {target_id!r}", path=f"reviews[{number}]")
            latest = {(target, target_id): one for target, target_id, one in sent}
            return sum(
                asking.ask(self._state, target, target_id, one.origin, one.reason, float(one.worth))
                for (target, target_id), one in latest.items()
            )

    def list_reviews(
        self,
        *,
        state: ReviewState | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Review]:
        """See Pool."""
        check_state(state)
        after = read_worth_cursor(cursor)
        check_limit(limit)
        with self._open():
            found = [one for one in self._in_order(channel) if state in (None, one.state)]
        if after is not None:
            place = (-after[0], after[1])
            found = [one for one in found if (-one.worth, one.review_id) > place]
        return Page(found[:limit], worth_cursor(found[limit - 1]) if len(found) > limit else None)

    def get_review(self, review_id: int) -> Review:
        """See Pool."""
        check_review_id(review_id)
        with self._open():
            return self._shown(review_id)

    def claim_review(self, by: str, *, channel: str | None = None, seconds: float = 600.0) -> Review | None:
        """See Pool."""
        who, length = check_reviewer(by), check_claim(seconds)
        with self._open():
            waiting = self._in_order(channel)
            mine = [one for one in waiting if one.state == "claimed" and one.claimed_by == who]
            free = [one for one in waiting if one.state == "open" and who not in one.skipped_by]
            for one in [*mine, *free]:
                until = self._state.clock() + length
                return self._changed(one.review_id, claimed_by=who, claimed_until=until)
            return None

    def skip_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        number, who = check_review_id(review_id), check_reviewer(by)
        with self._open():
            review = self._shown(number)
            check_mine(review, who)
            skipped = tuple(sorted({*review.skipped_by, who}))
            return self._changed(number, claimed_by=None, claimed_until=None, skipped_by=skipped)

    def resolve_review(self, review_id: int, by: str, verdict: ReviewVerdict, comment: str | None = None) -> Review:
        """See Pool."""
        number, who = check_review_id(review_id), check_reviewer(by)
        check_verdict(verdict)
        check_reason(comment, "comment")
        with self._open():
            review = self._shown(number)
            if is_resolved_so(review, verdict, comment):
                return review
            check_mine(review, who)
            done = self._changed(
                number,
                state="done",
                claimed_by=None,
                claimed_until=None,
                verdict=verdict,
                resolved_by=who,
                comment=comment,
                resolved_at=self._state.clock(),
            )
            self._decide(resolution(review, who, verdict, comment))
            return done

    def undo_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        number, who = check_review_id(review_id), check_reviewer(by)
        with self._open():
            review = self._shown(number)
            check_undo(review)
            nothing = dict.fromkeys(("verdict", "resolved_by", "comment", "resolved_at"))
            self._changed(number, state="open", **nothing)
            kind: Target = "step" if review.step_id is not None else "trajectory"
            made = self._state.decided.get((kind, review.step_id or review.trajectory_id or "", "manual"))
            if made is not None and is_of_review(made.decision, review):
                self._decide(resolution(review, who, None))
            # The decision that is there now may need no review, but whoever takes a verdict back wants another one.
            return self._changed(number, state="open")

    def _decide(self, decision: Decision) -> None:
        target: Target = "step" if decision.step_id is not None else "trajectory"
        target_id = decision.step_id or decision.trajectory_id or ""
        _, changed = decisions.decide(self._state, [(target, target_id, decision)])
        for trajectory_id in changed:
            groups.settle(self._state, self._state.trajectories[trajectory_id])

    def _shown(self, number: int) -> Review:
        if number not in self._state.reviews:
            raise NotFoundError(f"no review {number}", path="review_id")
        return shown(self._state.reviews[number], self._state.clock())

    def _changed(self, number: int, **changes: Any) -> Review:
        self._state.reviews[number] = msgspec.structs.replace(self._state.reviews[number], **changes)
        return self._shown(number)

    def _in_order(self, channel: str | None) -> list[Review]:
        found = [self._shown(number) for number, one in self._state.reviews.items() if channel in (None, one.channel)]
        return sorted(found, key=lambda one: (-one.worth, one.review_id))
