"""Curation: policies, decisions and why things stand as they do; reviews; what evaluators said."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response, delete, get, post, put
from litestar.concurrency import sync_to_thread
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery, QueryParameter, RawBody

from agentworld.api.access import reach
from agentworld.api.bodies import DecisionRequest, ReviewRequest, decode, decode_signals
from agentworld.api.sweeps import Sweeps
from agentworld.api.trajectories import Cursor
from agentworld.api.trajectories import Limit as PageLimit
from agentworld.client.curation_calls import (
    Changed,
    ClaimRequest,
    Cleared,
    CurationPolicyRequest,
    ResolveRequest,
    ReviewerRequest,
    TryRequest,
)
from agentworld.client.wire import API
from agentworld.errors import ConflictError
from agentworld.pool.decision_rules import check_policy
from agentworld.pool.protocol import Page, Pool
from agentworld.records import (
    ActivePolicy,
    CurationPolicy,
    CurationPreview,
    Decision,
    Evaluation,
    Review,
    Standing,
)

Channel = Annotated[str | None, QueryParameter(description="Of this channel alone")]
OneChannel = Annotated[str, QueryParameter(description="The channel")]
Wait = Annotated[
    bool, QueryParameter(description="Answer once everything is decided, or after 30 seconds with what is pending")
]
InState = Annotated[str | None, QueryParameter(description="open, claimed, done or withdrawn")]
Evaluated = Annotated[str | None, QueryParameter(description="ok or failed")]
Target = Annotated[str | None, QueryParameter(description="step, trajectory or group; goes with target_id")]


# --- policies -------------------------------------------------------------------------------------------------
# The framework wraps a plain function anew with each further method of its path, so these three are asynchronous.
@get(f"{API}/curation")
async def curation(state: State, channel: Channel = None) -> Page[ActivePolicy]:
    """The policies in force, by channel. `pending`: about how many trajectories are still to be decided."""
    return Page(await sync_to_thread(reach(state).curation, channel))


@put(f"{API}/curation", status_code=200, opt={"body": CurationPolicyRequest})
async def set_curation(state: State, body: RawBody, wait: Wait = False) -> ActivePolicy:
    """Put a policy in force for its channel. All that has ended there is decided anew, which goes on behind this
    answer: `pending` says how much is left. The same policy again changes nothing.
    """
    sent = decode(body, CurationPolicyRequest)
    return await sync_to_thread(_set, reach(state), state.sweeps, check_policy(_policy(sent)), sent.source, wait)


@delete(f"{API}/curation", status_code=200)
async def clear_curation(state: State, channel: OneChannel, wait: Wait = False) -> Cleared:
    """Take a channel's policy out of force. What it decided goes with it, behind this answer: see `pending`."""
    return await sync_to_thread(_clear, reach(state), state.sweeps, channel, wait)


@post(f"{API}/curation/try", status_code=200, sync_to_thread=True, opt={"body": TryRequest})
def try_curation(state: State, body: RawBody) -> CurationPreview:
    """What a policy would decide, with nothing changed. `whole` is false where `limit` left something out."""
    sent = decode(body, TryRequest)
    found: CurationPreview = reach(state).try_curation(_policy(sent), samples=sent.samples, limit=sent.limit)
    return found


@get(f"{API}/curation/history", sync_to_thread=True)
def list_curations(state: State, channel: Channel = None, limit: PageLimit = 100) -> Page[ActivePolicy]:
    """Policies that are or were in force, the latest first."""
    return Page(reach(state).list_curations(channel, limit=limit))


# --- decisions ------------------------------------------------------------------------------------------------
@post(f"{API}/decisions", status_code=200, sync_to_thread=True, opt={"body": DecisionRequest})
def decide(state: State, body: RawBody) -> Changed:
    """Decide about a trajectory or a step by hand: one decision, a list, or `{"decisions": [...]}`, all or none. What
    the next lease serves follows them. A verdict of null takes the manual decision back.
    """
    return Changed(reach(state).decide(decode_signals(body, "decisions")))


@get(f"{API}/decisions", sync_to_thread=True)
def decisions(
    state: State, trajectory_id: FromQuery[str | None] = None, step_id: FromQuery[str | None] = None
) -> Page[Decision]:
    """Decisions on a trajectory and on its steps, or on one step: by hand, and the policy's."""
    return Page(reach(state).decisions(trajectory_id=trajectory_id, step_id=step_id))


@get(f"{API}/trajectories/{{trajectory_id:str}}/standing", sync_to_thread=True)
def trajectory_standing(state: State, trajectory_id: FromPath[str]) -> Standing:
    """Why a trajectory is served or not, which rule decided, and how each rule stands."""
    found: Standing = reach(state).explain_standing(trajectory_id=trajectory_id)
    return found


@get(f"{API}/steps/{{step_id:str}}/standing", sync_to_thread=True)
def step_standing(state: State, step_id: FromPath[str]) -> Standing:
    """Why a step is served or not, which rule decided, and how each rule stands."""
    found: Standing = reach(state).explain_standing(step_id=step_id)
    return found


# --- reviews --------------------------------------------------------------------------------------------------
@get(f"{API}/reviews", sync_to_thread=True)
def list_reviews(
    state: State,
    review_state: InState = None,
    channel: Channel = None,
    cursor: Cursor = None,
    limit: PageLimit = 100,
) -> Page[Review]:
    """One page of reviews, the highest worth first."""
    wanted: Any = review_state
    page: Page[Review] = reach(state).list_reviews(state=wanted, channel=channel, cursor=cursor, limit=limit)
    return page


@post(f"{API}/reviews", status_code=200, sync_to_thread=True, opt={"body": ReviewRequest})
def add_reviews(state: State, body: RawBody) -> Changed:
    """Ask for reviews: one, a list, or `{"reviews": [...]}`, all or none. They hold nothing back; a decision does."""
    return Changed(reach(state).add_reviews(decode_signals(body, "reviews")))


@post(f"{API}/reviews/claim", status_code=200, sync_to_thread=True, opt={"body": ClaimRequest})
def claim_review(state: State, body: RawBody) -> Response[Review | None]:
    """The open review of the highest worth that `by` has not skipped, theirs for `seconds`; again, the same one. 204
    without content where there is none.
    """
    sent = decode(body, ClaimRequest)
    found = reach(state).claim_review(sent.by, channel=sent.channel, seconds=sent.seconds)
    return Response(found, status_code=204 if found is None else 200)


@get(f"{API}/reviews/{{review_id:int}}", sync_to_thread=True)
def get_review(state: State, review_id: FromPath[int]) -> Review:
    """One review."""
    found: Review = reach(state).get_review(review_id)
    return found


@post(f"{API}/reviews/{{review_id:int}}/skip", status_code=200, sync_to_thread=True, opt={"body": ReviewerRequest})
def skip_review(state: State, review_id: FromPath[int], body: RawBody) -> Review:
    """Give a claimed review back; `by` is not asked it again."""
    done: Review = reach(state).skip_review(review_id, decode(body, ReviewerRequest).by)
    return done


@post(f"{API}/reviews/{{review_id:int}}/resolve", status_code=200, sync_to_thread=True, opt={"body": ResolveRequest})
def resolve_review(state: State, review_id: FromPath[int], body: RawBody) -> Review:
    """A verdict: `accept` lets the target pass, `reject` keeps it back, at once. The same again changes nothing."""
    sent = decode(body, ResolveRequest)
    done: Review = reach(state).resolve_review(review_id, sent.by, sent.verdict, sent.comment)
    return done


@post(f"{API}/reviews/{{review_id:int}}/undo", status_code=200, sync_to_thread=True, opt={"body": ReviewerRequest})
def undo_review(state: State, review_id: FromPath[int], body: RawBody) -> Review:
    """Take a verdict and what it decided back; the review is open again."""
    done: Review = reach(state).undo_review(review_id, decode(body, ReviewerRequest).by)
    return done


# --- evaluations ----------------------------------------------------------------------------------------------
# Its path has another method, see above.
@get(f"{API}/evaluations")
async def list_evaluations(
    state: State,
    evaluator: FromQuery[str | None] = None,
    target: Target = None,
    target_id: FromQuery[str | None] = None,
    evaluation_state: Evaluated = None,
    cursor: Cursor = None,
    limit: PageLimit = 100,
) -> Page[Evaluation]:
    """One page of the latest that evaluators said, failures and their reasons among it. Digests are base64."""
    kind: Any = target
    wanted: Any = evaluation_state
    page: Page[Evaluation] = await sync_to_thread(
        reach(state).list_evaluations,
        evaluator=evaluator,
        target=kind,
        target_id=target_id,
        state=wanted,
        cursor=cursor,
        limit=limit,
    )
    return page


def _set(pool: Pool, sweeps: Sweeps, policy: CurationPolicy, source: str, wait: bool) -> ActivePolicy:
    sweep = sweeps.start(
        policy.channel, policy, lambda progress: pool.set_curation(policy, source=source, progress=progress)
    )
    sweep.wait(whole=wait)
    if sweep.result is not None:
        done: ActivePolicy = sweep.result
        return done
    for active in pool.curation(policy.channel):
        return active
    raise ConflictError(f"the policy of {policy.channel!r} was taken out of force meanwhile", path="channel")


def _clear(pool: Pool, sweeps: Sweeps, channel: str, wait: bool) -> Cleared:
    there = bool(pool.curation(channel))
    sweep = sweeps.start(channel, None, lambda progress: pool.clear_curation(channel, progress=progress))
    sweep.wait(whole=wait)
    if sweep.result is not None:
        return Cleared(sweep.result)
    pending = sum(one.pending for one in pool.list_curations(channel) if one.ended_at is not None)
    return Cleared(there, pending)


def _policy(sent: CurationPolicy) -> CurationPolicy:
    return CurationPolicy(**{name: getattr(sent, name) for name in CurationPolicy.__struct_fields__})


ROUTES = [
    curation,
    set_curation,
    clear_curation,
    try_curation,
    list_curations,
    decide,
    decisions,
    trajectory_standing,
    step_standing,
    list_reviews,
    add_reviews,
    claim_review,
    get_review,
    skip_review,
    resolve_review,
    undo_review,
    list_evaluations,
]
