"""Reviews of the SQL stores."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from agentworld.pool.base import check_limit
from agentworld.pool.decision_rules import Target, check_reason
from agentworld.pool.results import Page
from agentworld.pool.review_rules import (
    check_claim,
    check_review_id,
    check_reviewer,
    check_reviews,
    check_state,
    check_verdict,
    is_of_review,
    read_worth_cursor,
    resolution,
    worth_cursor,
)
from agentworld.pool.sql import reviews as rows
from agentworld.pool.sql.decision_reads import read_decisions
from agentworld.pool.sql.decisions import decide
from agentworld.pool.sql.standing import settle_touched
from agentworld.pool.sql.store_base import SqlStore
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Decision, NewReview, Review, ReviewState, ReviewVerdict


class ReviewMethods(SqlStore):
    """See agentworld.pool.curation_methods."""

    def add_reviews(self, reviews: Sequence[NewReview]) -> int:
        """See Pool."""
        sent = check_reviews(reviews)
        return self._writer.submit(lambda txn: rows.add(txn, sent)).result()

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
        with self._database.reading() as reader:
            found = rows.listed(reader, state, channel, after, limit + 1, self._clock())
        more = worth_cursor(found[limit - 1]) if len(found) > limit else None
        return Page(found[:limit], more)

    def get_review(self, review_id: int) -> Review:
        """See Pool."""
        check_review_id(review_id)
        with self._database.reading() as reader:
            return rows.find(reader, review_id, self._clock())

    def claim_review(self, by: str, *, channel: str | None = None, seconds: float = 600.0) -> Review | None:
        """See Pool."""
        who, length = check_reviewer(by), check_claim(seconds)
        after: tuple[float, int] | None = None
        while True:
            with self._database.reading() as reader:
                found = rows.candidates(reader, who, channel, after, self._clock())
            if found.keys or found.after is None:
                operation = functools.partial(rows.claim, by=who, channel=channel, seconds=length, offered=found.keys)
                claimed = self._writer.submit(operation).result()
                if claimed is not None or found.after is None:
                    return claimed
            after = found.after

    def skip_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        number, who = check_review_id(review_id), check_reviewer(by)
        return self._writer.submit(lambda txn: rows.skip(txn, number, who)).result()

    def resolve_review(self, review_id: int, by: str, verdict: ReviewVerdict, comment: str | None = None) -> Review:
        """See Pool."""
        number, who = check_review_id(review_id), check_reviewer(by)
        check_verdict(verdict)
        check_reason(comment, "comment")

        def operation(txn: Transaction) -> Review:
            review, is_new = rows.resolve(txn, number, who, verdict, comment)
            if is_new:
                _decide(txn, resolution(review, who, verdict, comment))
            return review

        return self._writer.submit(operation).result()

    def undo_review(self, review_id: int, by: str) -> Review:
        """See Pool."""
        number, who = check_review_id(review_id), check_reviewer(by)

        def operation(txn: Transaction) -> Review:
            before = rows.find(txn.connection, number, txn.now)
            review = rows.undo(txn, number)
            target, target_id = _target(review)
            made = read_decisions(txn.connection, target, target_id)
            if any(one.by == "manual" and one.step_id == review.step_id and is_of_review(one, before) for one in made):
                _decide(txn, resolution(review, who, None))
            # The decision that is there now may need no review, but whoever takes a verdict back wants another one.
            return rows.reopen(txn, number)

        return self._writer.submit(operation).result()


def _target(one: Review | Decision) -> tuple[Target, str]:
    return ("step", one.step_id) if one.step_id is not None else ("trajectory", one.trajectory_id or "")


def _decide(txn: Transaction, decision: Decision) -> None:
    target, target_id = _target(decision)
    made = decide(txn, [(target, target_id, decision)])
    settle_touched(txn, made.trajectories, made.steps)
