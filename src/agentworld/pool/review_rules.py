"""What reviews, evaluations and followers must be, and how reviews are handed out; the same in every store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from agentworld.errors import ConflictError, InvalidRequestError
from agentworld.pool.arguments import listed
from agentworld.pool.base import no_cursor
from agentworld.pool.bounds import check_moment, check_name, encode, wrong_type
from agentworld.pool.decision_rules import MAX_REASON, Target, check_reason
from agentworld.records import (
    Decision,
    Evaluation,
    EvaluationState,
    EvaluationTarget,
    NewReview,
    Review,
    ReviewOrigin,
    ReviewState,
    ReviewVerdict,
    check_id,
)

USUAL_WORTH = 0.5
MAX_CLAIM = 7 * 86_400.0  # seconds
MAX_REVIEWS = 1000  # in one call
MAX_EVALUATIONS = 1000
MAX_VALUES = 1000  # named values of one evaluation
MAX_DETAILS = 256 * 1024  # bytes of JSON
MAX_ERROR = 2000  # characters
MAX_STATE = 64 * 1024 * 1024
DIGEST = 16  # bytes
_ORIGINS: tuple[ReviewOrigin, ...] = get_args(ReviewOrigin)
_STATES: tuple[ReviewState, ...] = get_args(ReviewState)
_VERDICTS: tuple[ReviewVerdict, ...] = get_args(ReviewVerdict)
_TARGETS: tuple[EvaluationTarget, ...] = get_args(EvaluationTarget)
_EVALUATED: tuple[EvaluationState, ...] = get_args(EvaluationState)


def check_reviews(reviews: Sequence[NewReview]) -> list[tuple[Target, str, NewReview]]:
    """New reviews, each with its target; InvalidRequestError names the first that is malformed."""
    sent = listed(reviews, "NewReview", "reviews")
    if len(sent) > MAX_REVIEWS:
        raise InvalidRequestError(f"{len(sent)} reviews in one call", hint=f"Send at most {MAX_REVIEWS} at once")
    found: list[tuple[Target, str, NewReview]] = []
    for number, one in enumerate(sent):
        path = f"reviews[{number}]"
        if not isinstance(one, NewReview):
            raise wrong_type(one, "a NewReview", path)
        _check_known(one.origin, _ORIGINS, f"{path}.origin")
        check_reason(one.reason, f"{path}.reason")
        if not one.reason:
            raise InvalidRequestError("a review needs its reason", path=f"{path}.reason")
        if not _is_number(one.worth) or not 0 <= one.worth <= 1e6:
            raise InvalidRequestError("worth is a number from 0 to 1000000", path=f"{path}.worth")
        if one.step_id is None and one.trajectory_id is None:
            raise InvalidRequestError("a review is of a trajectory or of a step", path=path, hint="Set one of the ids")
        if one.step_id is not None:
            found.append(("step", check_id(one.step_id, f"{path}.step_id"), one))
        else:
            found.append(("trajectory", check_id(one.trajectory_id or "", f"{path}.trajectory_id"), one))
    return found


def check_state(state: object) -> None:
    """InvalidRequestError where no review can be in that state; None stands for all."""
    if state is not None:
        _check_known(state, _STATES, "state")


def check_verdict(verdict: object) -> None:
    """InvalidRequestError where it is no verdict of a review."""
    _check_known(verdict, _VERDICTS, "verdict")


def check_reviewer(by: object) -> str:
    """The name of somebody who reviews; InvalidRequestError where it is none."""
    check_name(by, "by")
    if not by:
        raise InvalidRequestError("a reviewer has a name", path="by")
    return str(by)


def check_claim(seconds: object) -> float:
    """How long a review is claimed for, from 1 second to 7 days."""
    if not _is_number(seconds) or not 1 <= seconds <= MAX_CLAIM:  # type: ignore[operator]  # A number by now.
        raise InvalidRequestError(f"seconds must be a number from 1 to {MAX_CLAIM:g}", path="seconds")
    return float(seconds)  # type: ignore[arg-type]  # As above.


def check_review_id(review_id: object) -> int:
    """The number of a review; InvalidRequestError where it is none."""
    if not isinstance(review_id, int) or isinstance(review_id, bool) or not 0 < review_id < 2**63:
        raise InvalidRequestError("review_id must be a whole number", path="review_id")
    return review_id


def shown(review: Review, now: float) -> Review:
    """A review as readers see it: claimed, where somebody has it still."""
    if review.state != "open" or review.claimed_by is None:
        return review
    if review.claimed_until is not None and review.claimed_until > now:
        return msgspec.structs.replace(review, state="claimed")
    return msgspec.structs.replace(review, claimed_by=None, claimed_until=None)


def check_mine(review: Review, by: str) -> None:
    """ConflictError where the review is not for `by` to skip or resolve. `review` is as it is shown."""
    if review.state == "claimed" and review.claimed_by != by:
        raise ConflictError(
            f"review {review.review_id} is with {review.claimed_by!r}",
            hint="Claim another one, or wait until their time is over",
        )
    if review.state not in ("open", "claimed"):
        raise ConflictError(f"review {review.review_id} is {review.state}", hint="Undo it first to change its verdict")


def is_resolved_so(review: Review, verdict: ReviewVerdict, comment: str | None) -> bool:
    """Whether that very verdict was given already."""
    return review.state == "done" and (review.verdict, review.comment) == (verdict, comment)


def check_undo(review: Review) -> None:
    """ConflictError where there is no verdict to take back."""
    if review.state != "done":
        raise ConflictError(f"review {review.review_id} has no verdict to take back")


def resolution(review: Review, by: str, verdict: ReviewVerdict | None, comment: str | None = None) -> Decision:
    """The manual decision that a verdict makes; None takes it back."""
    on_step = review.step_id is not None
    return Decision(
        verdict=None if verdict is None else "ready" if verdict == "accept" else "exclude",
        trajectory_id=None if on_step else review.trajectory_id,
        step_id=review.step_id,
        reason=None if verdict != "reject" else comment or f"rejected: {review.reason}"[:MAX_REASON],
        source=by,
    )


def is_of_review(decision: Decision, review: Review) -> bool:
    """Whether a manual decision is the one that the review's verdict made, and nobody has decided otherwise since."""
    made = resolution(review, review.resolved_by or "", review.verdict, review.comment)
    return (decision.verdict, decision.reason, decision.source) == (made.verdict, made.reason, made.source)


def worth_cursor(review: Review) -> str:
    """A cursor that goes on after a review, in the order of worth."""
    return f"{float(review.worth).hex()}:{review.review_id:x}"


def read_worth_cursor(cursor: str | None) -> tuple[float, int] | None:
    """The worth and number to go on after; QueryError where the cursor is none of reviews."""
    if cursor is None:
        return None
    worth, separator, number = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    try:
        found = float.fromhex(worth), int(number, 16)
    except (ValueError, OverflowError):
        raise no_cursor(cursor) from None
    if not separator or not math.isfinite(found[0]) or not 0 < found[1] < 2**63:
        raise no_cursor(cursor)
    return found


def check_evaluations(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Evaluations that may be stored; InvalidRequestError names the first that is malformed."""
    sent = listed(evaluations, "Evaluation", "evaluations")
    if len(sent) > MAX_EVALUATIONS:
        hint = f"Send at most {MAX_EVALUATIONS} at once"
        raise InvalidRequestError(f"{len(sent)} evaluations in one call", hint=hint)
    return [_checked(one, f"evaluations[{number}]") for number, one in enumerate(sent)]


def _checked(one: object, path: str) -> Evaluation:
    if not isinstance(one, Evaluation):
        raise wrong_type(one, "an Evaluation", path)
    check_name(one.evaluator, f"{path}.evaluator")
    _check_known(one.target, _TARGETS, f"{path}.target")
    check_id(one.target_id, f"{path}.target_id")
    _check_known(one.state, _EVALUATED, f"{path}.state")
    for name in ("fingerprint", "content"):
        value = getattr(one, name)
        if not isinstance(value, bytes) or len(value) != DIGEST:
            raise InvalidRequestError(f"{name} is a digest of {DIGEST} bytes", path=f"{path}.{name}")
    if not isinstance(one.values, dict):
        raise wrong_type(one.values, "an object", f"{path}.values")
    if len(one.values) > MAX_VALUES:
        raise InvalidRequestError(
            f"{len(one.values)} values of one evaluation are over {MAX_VALUES}",
            path=f"{path}.values",
            hint="Keep lists of numbers in details, or as an annotation of the step",
        )
    for name, value in one.values.items():
        check_name(name, f"{path}.values")
        if not _is_number(value):
            raise InvalidRequestError("values are finite numbers", path=f"{path}.values.{name}")
    if one.state == "failed" and (one.values or not one.error):
        raise InvalidRequestError("a failure has its error and no values", path=f"{path}.error")
    if one.error is not None and not isinstance(one.error, str):
        raise wrong_type(one.error, "a text", f"{path}.error")
    if not isinstance(one.attempts, int) or isinstance(one.attempts, bool) or not 0 <= one.attempts < 2**31:
        raise InvalidRequestError("attempts is a whole number", path=f"{path}.attempts")
    if one.seconds is not None and not (_is_number(one.seconds) and one.seconds >= 0):
        raise InvalidRequestError("seconds is a finite number from 0", path=f"{path}.seconds")
    if not _is_number(one.at):
        raise InvalidRequestError("at is a finite number", path=f"{path}.at")
    check_moment(one.at, f"{path}.at")
    if len(encode(one.details)) > MAX_DETAILS:
        raise InvalidRequestError(f"details are over {MAX_DETAILS} bytes", path=f"{path}.details")
    return msgspec.structs.replace(one, error=one.error[:MAX_ERROR] if one.error else None)


def check_evaluated(target: object, target_id: object, state: object) -> None:
    """InvalidRequestError where evaluations cannot be listed by these."""
    if (target is None) != (target_id is None):
        raise InvalidRequestError("target and target_id go together", path="target")
    if target is not None:
        _check_known(target, _TARGETS, "target")
    if state is not None:
        _check_known(state, _EVALUATED, "state")


def check_digests(fingerprint: object, contents: Sequence[bytes]) -> list[bytes]:
    """The contents that are asked for; InvalidRequestError where one is no digest, or there are over 1000."""
    wanted = list(dict.fromkeys(listed(contents, "digests", "contents")))
    if len(wanted) > MAX_EVALUATIONS:
        raise InvalidRequestError(f"{len(wanted)} contents are over {MAX_EVALUATIONS}", path="contents")
    if not all(isinstance(one, bytes) and len(one) == DIGEST for one in (fingerprint, *wanted)):
        raise InvalidRequestError(f"digests have {DIGEST} bytes", path="contents")
    return wanted


def check_follower(name: object, position: object, state: object, revision: object) -> None:
    """InvalidRequestError where a follower cannot be saved so."""
    check_name(name, "name")
    for path, value in (("position", position), ("revision", revision)):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise InvalidRequestError(f"{path} must be a whole number", path=path)
    if state is not None and (not isinstance(state, bytes) or len(state) > MAX_STATE):
        raise InvalidRequestError(f"state is up to {MAX_STATE} bytes", path="state")


def overtaken(name: str) -> ConflictError:
    """The error of a follower that another process has saved under the same name."""
    return ConflictError(
        f"another process follows as {name!r}",
        path="name",
        hint="Run one of them, or give it a name of its own",
    )


def _check_known(value: object, known: tuple[Any, ...], path: str) -> None:
    if value not in known:
        raise InvalidRequestError(f"{value!r} is none of these", path=path, hint=f"Known: {', '.join(known)}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
