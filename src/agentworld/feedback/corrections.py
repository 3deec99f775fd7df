"""Corrections: an edited reply as a target of supervised training, and as preferred to what was sampled.

The edited reply was never sampled, so it has no ids and no log-probabilities: what comes of it is text, which the
trainer renders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agentworld.errors import ConflictError
from agentworld.feedback.content import Reading, all_feedback, matching_step, reply_digest, target_step
from agentworld.forest.messages import says_the_same
from agentworld.pool.protocol import Pool
from agentworld.query import parse
from agentworld.records import Feedback, Message, NewTrajectory, Step, Tool, digest, exact_json

SOURCE = "corrections"
"""The source of comparisons that `store_corrections` makes."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """What a step was asked, what it should have said (`chosen`), and what it said (`rejected`).

    `tools`: those that the step had. `source`: who corrected it; `feedback_id`, `created_at`, `comment`: of that.
    """

    step_id: str
    trajectory_id: str
    channel: str
    prompt: list[Message]
    chosen: Message
    rejected: Message
    tools: list[Tool]
    source: str
    feedback_id: str
    created_at: float
    comment: str | None = None


def corrections(
    pool: Reading,
    *,
    where: str | None = None,
    source: str | None = None,
    excluded: bool = False,
    left_out: Counter[str] | None = None,
) -> Iterator[Correction]:
    """The corrections in a pool, in the order in which they came; of one person on one step only the last.

    `where`: of steps. `source`: only of this one. `excluded`: also of steps that are excluded for more than that their
    trajectory failed or was abandoned. What is said of a trajectory is of its last reply, or of the last one that its
    `content` names. `left_out` counts, by reason, what
    gives no row: missing (no such step with messages, or it is not of `where`), excluded, outdated (the reply is
    another one than was seen), unchanged, superseded (by a later one of the same source).
    """
    if where is not None:
        parse(where, "steps")
    left_out = Counter() if left_out is None else left_out
    latest: dict[tuple[str | None, str | None, str], Feedback] = {}
    for one in all_feedback(pool, "correction"):
        if source in (None, one.source):
            key = (one.step_id, None if one.step_id else one.trajectory_id, one.source)
            left_out["superseded"] += latest.pop(key, None) is not None
            latest[key] = one
    for one, step_id in _of_steps(pool, latest.values(), left_out):
        step = None if step_id is None else matching_step(pool, step_id, where)
        if step is None or step.prompt_messages is None or step.response_message is None:
            left_out["missing"] += 1
        elif not excluded and _is_excluded(pool, step):
            left_out["excluded"] += 1
        elif one.content is not None and reply_digest(step.response_message) != one.content:
            left_out["outdated"] += 1
        elif says_the_same(chosen := corrected_reply(one), step.response_message):
            left_out["unchanged"] += 1
        else:
            yield Correction(
                step_id=step.step_id,
                trajectory_id=step.trajectory_id,
                channel=step.channel,
                prompt=step.prompt_messages,
                chosen=chosen,
                rejected=step.response_message,
                tools=step.tools or [],
                source=one.source,
                feedback_id=one.feedback_id or "",
                created_at=one.created_at,
                comment=one.comment,
            )


def corrected_reply(one: Feedback) -> Message:
    """What should have been said. A text stands for the whole reply: it has neither reasoning nor tool calls."""
    if isinstance(one.value, str):
        return Message(role="assistant", content=one.value)
    return msgspec.convert(msgspec.to_builtins(one.value), Message)


def pair_row(one: Correction) -> dict[str, Any]:
    """A row of a preference data set in the conversational layout: `prompt`, `chosen` and `rejected` are messages."""
    return {"prompt": one.prompt, "chosen": [one.chosen], "rejected": [one.rejected], **_about(one)}


def target_row(one: Correction) -> dict[str, Any]:
    """A row for supervised training: `messages` end with the reply that should have been said."""
    return {"messages": [*one.prompt, one.chosen], **_about(one)}


def store_corrections(pool: Pool, found: Iterator[Correction]) -> int:
    """Put corrections into the pool as text-only steps, each preferred to its original; how many are new.

    Each becomes a finished trajectory of one step in the channel of the original, labelled `correction`, and a
    comparison. So units `trajectory` and `pair` serve them to specs that require messages and not tokens, as long as
    both sides may be served. Again it changes nothing. It is of the original's user, and is deleted with all of theirs;
    who deletes the original trajectory alone has to delete it too.
    """
    new = 0
    for one in found:
        name = "correction_" + digest(b"correction", one.feedback_id.encode()).hex()
        trajectory_id = f"trj_{name}"
        about = {"corrects": one.step_id, "feedback_id": one.feedback_id, "source": one.source}
        # Of the same user, so that it goes where all of theirs is deleted.
        user = pool.get_trajectory(one.trajectory_id).user
        pool.create_trajectory(
            NewTrajectory(trajectory_id=trajectory_id, channel=one.channel, metadata=about, user=user)
        )
        step = Step(
            step_id=f"stp_{name}",
            trajectory_id=trajectory_id,
            channel=one.channel,
            prompt_messages=one.prompt,
            tools=one.tools or None,
            response_message=one.chosen,
            created_at=one.created_at,
        )
        result = pool.append_steps([step])[0]
        if result.outcome == "rejected":
            raise ConflictError(f"the correction {one.feedback_id!r} cannot be stored: {result.reason}")
        pool.complete_trajectory(trajectory_id, "finished")
        preferred = Feedback(
            kind="comparison",
            feedback_id=f"fbk_{name}",
            step_id=step.step_id,
            other_id=one.step_id,
            source=SOURCE,
        )
        label = Feedback(
            kind="label",
            feedback_id=f"fbk_label_{name}",
            name="correction",
            value=True,
            trajectory_id=trajectory_id,
            source=SOURCE,
        )
        new += pool.add_signals([preferred, label]).changed > 0
    return new


def _about(one: Correction) -> dict[str, Any]:
    names = ("step_id", "trajectory_id", "source", "feedback_id", "created_at", "comment")
    return {"tools": one.tools, **{name: getattr(one, name) for name in names}}


def jsonl(row: dict[str, Any]) -> str:
    """A row as one line of JSON."""
    return exact_json.encode(row).decode() + "\n"


def _is_excluded(pool: Reading, step: Step) -> bool:
    """Whether something else than how the trajectory ended excludes the step: failed runs have good prompts."""
    if step.excluded_reason is not None or step.readiness != "excluded":
        return step.excluded_reason is not None
    trajectory = pool.get_trajectory(step.trajectory_id)
    return trajectory.excluded_reason != trajectory.status


def _of_steps(pool: Reading, found: Iterable[Feedback], left_out: Counter[str]) -> list[tuple[Feedback, str | None]]:
    """Each with the step that it is on, if that is there; what one person said of a step and of the trajectory whose
    reply that is, is one correction: the later.
    """
    latest: dict[tuple[str, str], tuple[Feedback, str | None]] = {}
    for number, one in enumerate(found):
        step_id = one.step_id
        if step_id is None:
            seen = _seen_step(pool, one) if one.content is not None else target_step(pool, one)
            step_id = None if seen is None else seen.step_id
        key = (one.source, f"step {step_id}" if step_id is not None else f"missing {number}")
        left_out["superseded"] += latest.pop(key, None) is not None
        latest[key] = (one, step_id)
    return list(latest.values())


def _seen_step(pool: Reading, one: Feedback) -> Step | None:
    """The trajectory's latest step with the reply that was seen; its last one where none has it."""
    cursor: str | None = None
    while True:
        page = pool.list_steps(
            trajectory_id=one.trajectory_id, order="newest", cursor=cursor, limit=50, include=("messages",)
        )
        for step in page.items:
            if step.response_message is not None and reply_digest(step.response_message) == one.content:
                return step
        if page.next_cursor is None:
            return target_step(pool, one)
        cursor = page.next_cursor
