"""Trajectories and steps: created, completed, submitted, listed and read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, get, post
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery, QueryParameter, RawBody

from agentworld.api.access import agent_base_url, agent_key, check_own, page_key, reach
from agentworld.api.bodies import decode, decode_steps
from agentworld.client.wire import API, Completion, StartedTrajectory, StepsReply, StepsRequest
from agentworld.errors import InvalidRequestError
from agentworld.pool.bounds import MAX_NAME
from agentworld.pool.protocol import Page
from agentworld.pool.sorting import SORTS
from agentworld.query import Explanation, Subject
from agentworld.records import Exchange, NewTrajectory, Step, Trajectory

Where = Annotated[str | None, QueryParameter(description="Expression over documented fields, e.g. reward >= 0.5")]
Cursor = Annotated[str | None, QueryParameter(description="next_cursor of the page before")]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="Records a page, at most")]
Include = Annotated[str | None, QueryParameter(description="Comma-separated: tokens, messages, logprobs")]
Order = Literal["oldest", "newest"]
Sort = Annotated[
    str | None,
    QueryParameter(description=f"{', '.join(SORTS)}; with - before it from the highest value on. Not with order"),
]
INCLUDES = ("tokens", "messages", "logprobs")


class TrajectoryRequest(NewTrajectory, kw_only=True, forbid_unknown_fields=True):
    """A trajectory to create; without an id, one is made."""

    group_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    rollout_index: Annotated[int, msgspec.Meta(ge=0)] | None = None
    attempt: Annotated[int, msgspec.Meta(ge=0)] = 0
    channel: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)] = "train"


def parse_include(text: str | None) -> tuple[str, ...]:
    """The parts of a step that the caller wants."""
    parts = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    for part in parts:
        if part not in INCLUDES:
            raise InvalidRequestError(
                f"{part!r} cannot be included", path="?include", hint=f"Known: {', '.join(INCLUDES)}"
            )
    return parts


@post(f"{API}/trajectories", status_code=201, sync_to_thread=True, opt={"body": TrajectoryRequest})
def create_trajectory(request: Request[Any, Any, Any], state: State, body: RawBody) -> StartedTrajectory:
    """Create a trajectory; creating it again under the same id returns the one that is there."""
    sent = decode(body, TrajectoryRequest)
    new = NewTrajectory(**msgspec.structs.asdict(sent))
    trajectory = reach(state).create_trajectory(new)
    return StartedTrajectory(
        trajectory.trajectory_id,
        trajectory,
        agent_base_url(request, state.settings, trajectory.trajectory_id),
        agent_key(trajectory.trajectory_id, state.settings),
        page_key(trajectory.trajectory_id, state.settings),
    )


@post(
    f"{API}/trajectories/{{trajectory_id:str}}/complete", status_code=200, sync_to_thread=True, opt={"body": Completion}
)
def complete_trajectory(state: State, trajectory_id: FromPath[str], body: RawBody) -> Trajectory:
    """End a trajectory. The same status again changes nothing, another is a conflict."""
    sent = decode(body, Completion)
    ended: Trajectory = reach(state).complete_trajectory(trajectory_id, sent.status, sent.reward)
    return ended


@get(f"{API}/trajectories", sync_to_thread=True)
def list_trajectories(
    state: State,
    where: Where = None,
    trajectory_id: FromQuery[str | None] = None,
    group_id: FromQuery[str | None] = None,
    channel: FromQuery[str | None] = None,
    order: FromQuery[Order] = "oldest",
    sort: Sort = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Trajectory]:
    """One page of trajectories by creation, or in the order of a value; absent values come last. With `where` a page
    can be `partial`: its search ended at the limit of what one page looks at, so go on with next_cursor.
    """
    page: Page[Trajectory] = reach(state).list_trajectories(
        where=where,
        trajectory_id=trajectory_id,
        group_id=group_id,
        channel=channel,
        order=order,
        sort=sort,
        cursor=cursor,
        limit=limit,
    )
    return page


@get(f"{API}/trajectories/{{trajectory_id:str}}", sync_to_thread=True)
def get_trajectory(state: State, trajectory_id: FromPath[str]) -> Trajectory:
    """One trajectory."""
    trajectory: Trajectory = reach(state).get_trajectory(trajectory_id)
    return trajectory


@get(f"{API}/trajectories/{{trajectory_id:str}}/exchanges", sync_to_thread=True)
def list_exchanges(
    state: State, trajectory_id: FromPath[str], order: FromQuery[Order] = "oldest", limit: Limit = 1000
) -> Page[Exchange]:
    """The calls of a trajectory, failed ones too, without their messages: the first, or the last ones. A key for this
    trajectory alone sees them with the scope write too, as its agent's own does.
    """
    check_own(trajectory_id)
    reach(state).get_trajectory(trajectory_id)
    return Page(reach(state).list_exchanges(trajectory_id, order=order, limit=limit))


@post(f"{API}/steps", status_code=200, sync_to_thread=True, opt={"body": StepsRequest})
def submit_steps(state: State, body: RawBody) -> StepsReply:
    """Submit steps of agents that call their model themselves. One result a step: a bad one does not fail the others,
    and one that is there already is not stored twice.
    """
    steps = decode_steps(body)
    return StepsReply(reach(state).append_steps(steps) if steps else [])


@get(f"{API}/steps", sync_to_thread=True)
def list_steps(
    state: State,
    where: Where = None,
    trajectory_id: FromQuery[str | None] = None,
    group_id: FromQuery[str | None] = None,
    channel: FromQuery[str | None] = None,
    order: FromQuery[Order] = "oldest",
    cursor: Cursor = None,
    limit: Limit = 100,
    include: Include = None,
) -> Page[Step]:
    """One page of steps in the order of their commits. Ids, messages and log-probabilities only when included. With
    `where` a page can be `partial`, as one of trajectories.
    """
    page: Page[Step] = reach(state).list_steps(
        where=where,
        trajectory_id=trajectory_id,
        group_id=group_id,
        channel=channel,
        order=order,
        cursor=cursor,
        limit=limit,
        include=parse_include(include),
    )
    return page


@get(f"{API}/steps/{{step_id:str}}", sync_to_thread=True)
def get_step(state: State, step_id: FromPath[str], include: Include = None) -> Step:
    """One step. Ids, messages and log-probabilities only when included."""
    step: Step = reach(state).get_step(step_id, include=parse_include(include))
    return step


@get(f"{API}/explain", sync_to_thread=True)
def explain(
    state: State,
    where: Annotated[str, QueryParameter(description="Expression over documented fields, e.g. reward >= 0.5")],
    subject: FromQuery[Subject] = "trajectories",
) -> Explanation:
    """How a query is understood and answered: its fields, the conditions that an index answers, the engine's plan."""
    found: Explanation = reach(state).explain(where, subject)
    return found


ROUTES = [
    explain,
    create_trajectory,
    complete_trajectory,
    list_trajectories,
    get_trajectory,
    list_exchanges,
    submit_steps,
    list_steps,
    get_step,
]
