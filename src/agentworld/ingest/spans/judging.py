"""Scores that spans tell of, in a pool: on the call that they judge, which may come after them.

A score is of the nearest call among what its span is within. Where that is not known yet, the score waits as a label of
the trajectory, so that any server can put it to its place once more has come.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from agentworld.errors import AgentWorldError, ConflictError, NotFoundError, PoolError
from agentworld.ingest.spans.loose import named, number
from agentworld.ingest.spans.node import Score
from agentworld.pool.protocol import Pool
from agentworld.records import Feedback, Reward, Trajectory, digest

SOURCE = "otlp"
WAITING = "trace.waiting"
"""The label of scores whose span is within one that has not come."""
_PAGE = 100


def put(pool: Pool, trajectory_id: str, step_id: str | None, trace_id: str, score: Score) -> str | None:
    """Put a score on a step, or on the trajectory; why not, where it cannot be. What is there under its name stays.

    Several servers may be told of scores in one instant: with each goes feedback with an id that all of them make of
    the target and the name, of which the store takes the first.
    """
    name = named(score.name) or "score"
    value = score.value if isinstance(score.value, str | bool) else number(score.value)
    reward = value if isinstance(value, float) and math.isfinite(value) else None
    there = _there(pool, trajectory_id, step_id, is_reward=reward is not None)
    if name in there:
        return _taken(step_id or trajectory_id, name, value, there)
    target: dict[str, Any] = {"source": SOURCE, "trajectory_id": trajectory_id, "step_id": step_id}
    first = f"{trace_id}.{digest(trajectory_id.encode(), (step_id or '').encode(), name.encode()).hex()}.score"
    if reward is not None:
        details = {"comment": score.comment} if score.comment else None
        signals: list[Reward | Feedback] = [
            Feedback(kind="comment", feedback_id=first, comment=f"{name} = {reward!r}", **target),
            Reward(name=name, value=reward, details=details, **target),
        ]
    else:
        signals = [Feedback(kind="label", feedback_id=first, name=name, value=value, comment=score.comment, **target)]
    try:
        return _add(pool, *signals)
    except ConflictError:
        there = _there(pool, trajectory_id, step_id, is_reward=reward is not None)
        return _taken(step_id or trajectory_id, name, value, there)


def _there(pool: Pool, trajectory_id: str, step_id: str | None, *, is_reward: bool) -> dict[str, Any]:
    about = pool.get_trajectory(trajectory_id) if step_id is None else pool.get_step(step_id, include=())
    return about.rewards if is_reward else about.labels


def _taken(target_id: str, name: str, value: Any, there: dict[str, Any]) -> str | None:
    """Why a score is not kept; None where it is the one that is there."""
    if name in there and there[name] == value:
        return None
    return f"{target_id} has the score {name!r} of {there.get(name)!r} already; {value!r} is not kept"[:300]


def wait(
    pool: Pool, trajectory_id: str, trace_id: str, score: Score, parent: str, step_id: str | None = None
) -> str | None:
    """Keep a score until the span `parent` comes; why not, where it cannot be. `step_id`: where it was put since."""
    value = {
        "trace": trace_id,
        "span": score.node,
        "parent": parent,
        "name": score.name,
        "value": score.value,
        "comment": score.comment,
        "step": step_id,
    }
    kept = Feedback(
        kind="label",
        feedback_id=f"{trace_id}.{score.node}.{_word(score.name)}.{parent}.{'put' if step_id else 'waiting'}",
        name=WAITING,
        value=value,
        source=SOURCE,
        trajectory_id=trajectory_id,
    )
    try:
        return _add(pool, kept)
    except ConflictError as error:
        return error.one_line()[:300]


def waiting(pool: Pool, trajectory: Trajectory) -> list[dict[str, Any]]:
    """What `wait` kept in a trajectory, of each score the last."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in _labels(pool, trajectory.trajectory_id) if WAITING in trajectory.labels else ():
        kept = each.value
        if each.name == WAITING and each.source == SOURCE and isinstance(kept, dict):
            found[str(kept.get("trace")), str(kept.get("span")), str(kept.get("name"))] = kept
    return list(found.values())


def told(pool: Pool, trajectory_id: str, feedback_id: str) -> Any:
    """The value of a label of a trajectory; None where it is not there."""
    return next((each.value for each in _labels(pool, trajectory_id) if each.feedback_id == feedback_id), None)


def _labels(pool: Pool, trajectory_id: str) -> Iterator[Feedback]:
    cursor = None
    while True:
        page = pool.list_feedback(trajectory_id=trajectory_id, kind="label", cursor=cursor, limit=_PAGE)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return


def score_of(kept: dict[str, Any]) -> Score:
    """The score that was kept."""
    comment = kept.get("comment")
    return Score(
        name=str(kept.get("name")),
        value=kept.get("value"),
        node=str(kept.get("span")),
        comment=comment if isinstance(comment, str) else None,
    )


def put_rest(pool: Pool, trajectory: Trajectory) -> None:
    """Put what still waits to its step, or to the trajectory where no step came for it: the trace is over."""
    for kept in waiting(pool, trajectory):
        if kept.get("step"):
            continue
        step_id: str | None = f"{kept.get('trace')}.{kept.get('parent')}"
        if not is_step(pool, trajectory.trajectory_id, str(step_id)):
            step_id = None
        put(pool, trajectory.trajectory_id, step_id, str(kept.get("trace")), score_of(kept))
    if WAITING in trajectory.labels:
        # A label without a value is taken away.
        _add(pool, Feedback(kind="label", name=WAITING, source=SOURCE, trajectory_id=trajectory.trajectory_id))


def is_step(pool: Pool, trajectory_id: str, step_id: str) -> bool:
    """Whether the trajectory has this step."""
    try:
        return pool.get_step(step_id, include=()).trajectory_id == trajectory_id
    except NotFoundError:
        return False


def _add(pool: Pool, *signals: Reward | Feedback) -> str | None:
    try:
        pool.add_signals(signals)
    except (PoolError, ConflictError):
        raise
    except AgentWorldError as error:
        return error.one_line()[:300]
    return None


def _word(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:40]
