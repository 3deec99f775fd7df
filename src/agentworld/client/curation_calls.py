"""Curation over HTTP as data: bodies that are not records, and each call with its path, body and reply type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from agentworld.client.calls import Call
from agentworld.client.wire import API
from agentworld.pool.arguments import listed
from agentworld.pool.bounds import wrong_type
from agentworld.pool.decision_rules import check_one_subject
from agentworld.pool.results import Page
from agentworld.pool.review_rules import check_review_id
from agentworld.records import (
    ActivePolicy,
    CurationPolicy,
    CurationPreview,
    Decision,
    Evaluation,
    NewReview,
    Review,
    ReviewVerdict,
    Standing,
    exact_json,
)

T = TypeVar("T")
TRIED = 10_000  # trajectories that a server looks at where it is not told how many
TRY_SECONDS = 1800.0  # a client waits so long for what a policy would do with all that is there


class CurationPolicyRequest(CurationPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy to put in force, and who says so."""

    source: str = "api"


class TryRequest(CurationPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy to try on the latest `limit` trajectories, null for all; up to `samples` ids are shown of each rule."""

    samples: Annotated[int, msgspec.Meta(ge=0, le=100)] = 5
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = TRIED


class Cleared(msgspec.Struct, frozen=True):
    """Whether there was a policy, and about how many trajectories are still to be freed of its decisions."""

    cleared: bool
    pending: int = 0


class Changed(msgspec.Struct, frozen=True):
    """How many of what was sent changed something."""

    changed: int


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who wants something to review, of which channel (null: any), and for how many seconds it is theirs."""

    by: str
    channel: str | None = None
    seconds: float = 600.0


class ReviewerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who says so."""

    by: str


class ResolveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verdict on a review: `accept` lets its target pass, `reject` keeps it back."""

    by: str
    verdict: ReviewVerdict
    comment: str | None = None


def set_curation(policy: CurationPolicy, source: str) -> Call[ActivePolicy]:
    """Put a policy in force; the same again changes nothing."""
    return _send("PUT", "/curation", {**_fields(policy), "source": source}, ActivePolicy)


def clear_curation(channel: str) -> Call[Cleared]:
    """Take a channel's policy away. Not retried: a second answer would say that there was none."""
    return Call("DELETE", f"{API}/curation?{urlencode({'channel': channel})}", Cleared, idempotent=False)


def curation(channel: str | None) -> Call[Page[ActivePolicy]]:
    """The policies in force."""
    return _get("/curation", Page[ActivePolicy], channel=channel)


def list_curations(channel: str | None, limit: int) -> Call[Page[ActivePolicy]]:
    """Policies that are or were in force."""
    return _get("/curation/history", Page[ActivePolicy], channel=channel, limit=limit)


def try_curation(policy: CurationPolicy, samples: int, limit: int | None) -> Call[CurationPreview]:
    """What a policy would do."""
    body = {**_fields(policy), "samples": samples, "limit": limit}
    call = _send("POST", "/curation/try", body, CurationPreview)
    return msgspec.structs.replace(call, timeout=TRY_SECONDS)


def decide(decisions: Sequence[Decision]) -> Call[Changed]:
    """Manual decisions."""
    sent = listed(decisions, "Decision", "decisions")
    for number, one in enumerate(sent):
        if not isinstance(one, Decision):
            raise wrong_type(one, "a Decision", f"decisions[{number}]")
    return _send("POST", "/decisions", {"decisions": sent}, Changed)


def decisions(trajectory_id: str | None, step_id: str | None) -> Call[Page[Decision]]:
    """Decisions on a trajectory or on a step."""
    target, target_id = check_one_subject(trajectory_id, step_id)
    return _get("/decisions", Page[Decision], **{f"{target}_id": target_id})


def standing(trajectory_id: str | None, step_id: str | None) -> Call[Standing]:
    """Why a trajectory or step is served or not."""
    target, target_id = check_one_subject(trajectory_id, step_id)
    return _get(f"/{'steps' if target == 'step' else 'trajectories'}/{quote(target_id, safe='')}/standing", Standing)


def add_reviews(reviews: Sequence[NewReview]) -> Call[Changed]:
    """Ask for reviews."""
    sent = listed(reviews, "NewReview", "reviews")
    for number, one in enumerate(sent):
        if not isinstance(one, NewReview):
            raise wrong_type(one, "a NewReview", f"reviews[{number}]")
    return _send("POST", "/reviews", {"reviews": sent}, Changed)


def list_reviews(state: str | None, channel: str | None, cursor: str | None, limit: int) -> Call[Page[Review]]:
    """One page of reviews."""
    return _get("/reviews", Page[Review], review_state=state, channel=channel, cursor=cursor, limit=limit)


def get_review(review_id: int) -> Call[Review]:
    """One review."""
    return _get(_review(review_id), Review)


def claim_review(by: str, channel: str | None, seconds: float) -> Call[Review]:
    """Something to review; a retry gets the same."""
    return _send("POST", "/reviews/claim", ClaimRequest(by=by, channel=channel, seconds=seconds), Review)


def skip_review(review_id: int, by: str) -> Call[Review]:
    """Give a review back."""
    return _send("POST", f"{_review(review_id)}/skip", ReviewerRequest(by=by), Review)


def resolve_review(review_id: int, by: str, verdict: ReviewVerdict, comment: str | None) -> Call[Review]:
    """A verdict; the same again changes nothing."""
    body = ResolveRequest(by=by, verdict=verdict, comment=comment)
    return _send("POST", f"{_review(review_id)}/resolve", body, Review)


def undo_review(review_id: int, by: str) -> Call[Review]:
    """Take a verdict back. Not retried: a second answer would say that there is none."""
    call = _send("POST", f"{_review(review_id)}/undo", ReviewerRequest(by=by), Review)
    return msgspec.structs.replace(call, idempotent=False)


def list_evaluations(**filters: Any) -> Call[Page[Evaluation]]:
    """One page of what evaluators said."""
    return _get("/evaluations", Page[Evaluation], evaluation_state=filters.pop("state"), **filters)


def _fields(policy: object) -> dict[str, Any]:
    if not isinstance(policy, CurationPolicy):
        raise wrong_type(policy, "a CurationPolicy", "policy")
    return {name: getattr(policy, name) for name in CurationPolicy.__struct_fields__}


def _review(review_id: int) -> str:
    return f"/reviews/{check_review_id(review_id)}"


def _get(path: str, reply: type[T], **parameters: Any) -> Call[T]:
    given = {name: value for name, value in parameters.items() if value is not None}
    return Call("GET", f"{API}{path}?{urlencode(given)}" if given else f"{API}{path}", reply)


def _send(method: str, path: str, body: Any, reply: type[T]) -> Call[T]:
    return Call(method, f"{API}{path}", reply, exact_json.encode(body))
