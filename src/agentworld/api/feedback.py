"""Feedback and annotations: stored, and read back."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.datastructures import State
from litestar.params import FromQuery, QueryParameter, RawBody

from agentworld.api.access import CALLER, reach
from agentworld.api.bodies import AnnotationRequest, decode, decode_signals
from agentworld.api.bodies import FeedbackRequest as OneFeedback
from agentworld.api.page_feedback import check_of_page
from agentworld.api.trajectories import Cursor
from agentworld.api.trajectories import Limit as PageLimit
from agentworld.client.wire import API, AnnotationsRequest, FeedbackRequest
from agentworld.pool.annotation_arrays import plain_values
from agentworld.pool.protocol import Page, SignalsResult
from agentworld.records import Annotation, Feedback, FeedbackKind

StepIds = Annotated[str | None, QueryParameter(description="Comma-separated ids of steps")]
Names = Annotated[str | None, QueryParameter(description="A JSON list of names; all without it")]


@post(f"{API}/feedback", status_code=200, sync_to_thread=True, opt={"body": OneFeedback | FeedbackRequest})
def add_feedback(state: State, body: RawBody) -> SignalsResult:
    """Store one piece of feedback, a list of them, or `{"feedback": [...]}`: all or none, each once by its id."""
    sent = decode_signals(body, "feedback")
    if not CALLER.get().allows(("write",)):
        check_of_page(sent)
    result: SignalsResult = reach(state).add_signals(sent)
    return result


@post(f"{API}/annotations", status_code=200, sync_to_thread=True, opt={"body": AnnotationRequest | AnnotationsRequest})
def add_annotations(state: State, body: RawBody) -> SignalsResult:
    """Store one annotation, a list of them, or `{"annotations": [...]}`: all or none."""
    result: SignalsResult = reach(state).add_signals(decode_signals(body, "annotations"))
    return result


@get(f"{API}/feedback", sync_to_thread=True)
def list_feedback(
    state: State,
    trajectory_id: FromQuery[str | None] = None,
    step_id: FromQuery[str | None] = None,
    kind: FromQuery[FeedbackKind | None] = None,
    source: FromQuery[str | None] = None,
    name: FromQuery[str | None] = None,
    cursor: Cursor = None,
    limit: PageLimit = 100,
) -> Page[Feedback]:
    """One page of feedback in the order of its commits: on a trajectory itself, on a step, or all; of this kind, source
    and name. Only a page without a cursor is the last: each looks at a bounded number.
    """
    page: Page[Feedback] = reach(state).list_feedback(
        trajectory_id=trajectory_id, step_id=step_id, kind=kind, source=source, name=name, cursor=cursor, limit=limit
    )
    return page


@get(f"{API}/annotations", sync_to_thread=True)
def get_annotations(
    state: State, step_ids: StepIds = None, trajectory_id: FromQuery[str | None] = None, names: Names = None
) -> Page[Annotation]:
    """Annotations of steps, or of a trajectory and all of its steps. A value that is not finite is null."""
    wanted = None if names is None else decode(names.encode(), list[str], "?names")
    steps = None if step_ids is None else [one.strip() for one in step_ids.split(",") if one.strip()]
    found = reach(state).get_annotations(step_ids=steps, trajectory_id=trajectory_id, names=wanted)
    return Page([msgspec.structs.replace(one, values=plain_values(one.values)) for one in found])


ROUTES = [add_feedback, add_annotations, list_feedback, get_annotations]
