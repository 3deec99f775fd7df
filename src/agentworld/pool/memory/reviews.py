"""Reviews in memory: asked for, and withdrawn, by what decides."""

from __future__ import annotations

import msgspec

from agentworld.pool.decision_rules import Target
from agentworld.pool.memory.state import State
from agentworld.pool.review_rules import USUAL_WORTH
from agentworld.records import Review, ReviewOrigin


def ask(
    state: State,
    target: Target,
    target_id: str,
    origin: ReviewOrigin,
    reason: str,
    worth: float | None,
    holds_back: bool = False,
) -> bool:
    """Somebody should look at the target; whether that changes anything. `worth`: None keeps what it was. `holds_back`:
    it is not served before, so that it is asked again also where the same was resolved once.
    """
    there = find(state, target, target_id)
    if worth is None:
        worth = there.worth if there is not None else USUAL_WORTH
    if there is not None and there.state == "open":
        worth = max(worth, there.worth)
        if (there.reason, there.worth, there.origin) == (reason, worth, origin):
            return False
        state.reviews[there.review_id] = msgspec.structs.replace(there, reason=reason, worth=worth, origin=origin)
        return True
    if there is not None and there.state == "done" and there.reason == reason and not holds_back:
        return False
    owner = state.steps[target_id].step.trajectory_id if target == "step" else target_id
    if there is None:
        state.last_review += 1
    review = Review(
        review_id=state.last_review if there is None else there.review_id,
        channel=state.trajectories[owner].channel,
        origin=origin,
        reason=reason,
        worth=worth,
        state="open",
        created_at=state.clock(),
        trajectory_id=owner,
        step_id=target_id if target == "step" else None,
    )
    state.reviews[review.review_id] = review
    return True


def withdraw(state: State, target: Target, target_id: str) -> None:
    """Nobody needs to look at it any more, where a decision has asked for it."""
    there = find(state, target, target_id)
    if there is not None and there.state == "open" and there.origin in ("rule", "manual"):
        state.reviews[there.review_id] = msgspec.structs.replace(
            there, state="withdrawn", claimed_by=None, claimed_until=None
        )


def move(state: State, trajectory_id: str, channel: str) -> None:
    """The trajectory turns out to be of another channel than the reviews of it and of its steps say."""
    for review in state.reviews.values():
        if review.trajectory_id == trajectory_id:
            state.reviews[review.review_id] = msgspec.structs.replace(review, channel=channel)


def find(state: State, target: Target, target_id: str) -> Review | None:
    """The review of a target, with the state that is stored: `open` where somebody has it too."""
    for review in state.reviews.values():
        own = review.step_id if target == "step" else review.trajectory_id
        if own == target_id and (review.step_id is None) == (target == "trajectory"):
            return review
    return None
