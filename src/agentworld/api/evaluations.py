"""What evaluators that run elsewhere said, and where a run of them is, for `agentworld reward run --url`.

Evaluators, their code and their addresses stay with whoever runs them: only what they said comes in here.
"""

from __future__ import annotations

from litestar import get, post
from litestar.concurrency import sync_to_thread
from litestar.datastructures import State
from litestar.params import FromQuery, RawBody

from agentworld.api.access import reach
from agentworld.api.bodies import decode
from agentworld.client.evaluation_calls import (
    FOLLOWERS,
    EvaluationsRequest,
    FollowerRequest,
    FoundFollower,
    Kept,
    KnownRequest,
)
from agentworld.client.wire import API
from agentworld.errors import ForbiddenError
from agentworld.pool.protocol import Page
from agentworld.records import Evaluation, Follower


# Shares its path with the listing, see agentworld.api.curation.
@post(f"{API}/evaluations", status_code=200, opt={"body": EvaluationsRequest})
async def put_evaluations(state: State, body: RawBody) -> Kept:
    """Keep the latest that evaluators said: up to 1000, digests as base64. What was deleted meanwhile is left out. The
    rewards that follow are sent apart.
    """
    sent = decode(body, EvaluationsRequest).evaluations
    return Kept(await sync_to_thread(reach(state).put_evaluations, sent))


@post(f"{API}/evaluations/known", status_code=200, sync_to_thread=True, opt={"body": KnownRequest})
def known_evaluations(state: State, body: RawBody) -> Page[Evaluation]:
    """What the evaluator of that fingerprint said of up to 1000 contents, whatever the target, but for failures."""
    sent = decode(body, KnownRequest)
    found: dict[bytes, Evaluation] = reach(state).known_evaluations(sent.fingerprint, sent.contents)
    return Page(list(found.values()))


@get(f"{API}/followers", sync_to_thread=True)
def load_follower(state: State, name: FromQuery[str]) -> FoundFollower:
    """Where a run of evaluators is; null where it has saved nothing."""
    return FoundFollower(reach(state).load_follower(_run_of_evaluators(name)))


@post(f"{API}/followers", status_code=200, opt={"body": FollowerRequest})
async def save_follower(state: State, body: RawBody) -> Follower:
    """Save where a run of evaluators is. `revision`: of what was loaded or saved last, 0 at first; 409 where another
    process has saved under the name since.
    """
    sent = decode(body, FollowerRequest)
    saved: Follower = await sync_to_thread(
        reach(state).save_follower,
        _run_of_evaluators(sent.name),
        sent.position,
        sent.state,
        revision=sent.revision,
    )
    return saved


def _run_of_evaluators(name: str) -> str:
    """The name; ForbiddenError for followers that are no runs of evaluators, as what those keep is their own."""
    if not name.startswith(FOLLOWERS):
        raise ForbiddenError(
            "only runs of evaluators keep their place over HTTP", path="name", hint=f"Begin the name with {FOLLOWERS}"
        )
    return name


ROUTES = [put_evaluations, known_evaluations, load_follower, save_follower]
