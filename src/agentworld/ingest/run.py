"""What a format makes of a file: runs of agents, and notes of what could not be read.

Formats know nothing of pools. Ids in a run are the format's own; the loader makes pool-wide ones of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.ingest import limits
from agentworld.records import Message, Step, Tool
from agentworld.records.trajectory import TerminalStatus


class RunReward(msgspec.Struct, kw_only=True, frozen=True):
    """A named value that the file has; on the step with that key, or on the whole run."""

    name: str
    value: float
    step: str | None = None
    details: dict[str, Any] | None = None


class RunFeedback(msgspec.Struct, kw_only=True, frozen=True):
    """A label, rating, comment or comparison that the file has; fields as in Feedback. `step`, `other`: keys of steps;
    a comparison prefers `step` to `other`.
    """

    kind: str
    name: str | None = None
    value: Any = None
    comment: str | None = None
    step: str | None = None
    other: str | None = None


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """A run that a part of another one is in a file of its own: `native_id`, or `session` with the key of its first
    step within the other run.
    """

    native_id: str | None = None
    session: str | None = None
    step: str | None = None


class Run(msgspec.Struct, kw_only=True):
    """One trajectory. `native_id`: what the file calls it, or None where it has no name for it; then its content
    decides what is the same, so nothing in it may depend on where in the file it stands. `session`: where native_id is
    None, what the file calls a session that may grow, and that others may be called too: what it begins with tells it
    apart from these. `grows_as`: where both are None, and the file is this run, which whoever wrote it may go on with:
    which of the runs of the file it is ("" where it is the only one). Then what it begins with tells it apart.
    `file_as`: what that would be, where it is a row among others and may be in a file of its own too.

    `steps`: in order; `step_id` is the run's own key ("0", "1", ...), `parent_step_id` names such a key,
    `trajectory_id` is "". What the format says of the lineage (sub-agents, compaction, rewinding) is in
    `parent_step_id`, `fork_reason`, `agent` and `metadata`. `media`: bytes and media type by digest, for the media
    parts of messages. `trailing`: messages after the last reply (a last tool result, a last user's turn), which no step
    has, or whose reply is no step; they are kept in the trajectory's metadata, as far as they are not too large.
    `parent_run`: native id of the run that began this one (a sub-agent that has a file of its own). `metadata`: JSON
    that is worth keeping. `file`: the name of the file that it begins in, where a format reads several together.
    `held_by`: native id of a run that may have all of this one, where that is not `parent_run`; `parts`: what of it
    would be runs by themselves; `exported`: the trajectory of a pool that was written to the file. Neither these nor
    the file are part of what the run is known by.
    """

    native_id: str | None
    session: str | None = None
    grows_as: str | None = None
    file_as: str | None = None
    held_by: str | None = None
    parts: list[Part] = []
    exported: str | None = None
    file: str | None = None
    steps: list[Step] = []
    status: TerminalStatus = "finished"
    rewards: list[RunReward] = []
    feedback: list[RunFeedback] = []
    media: dict[str, tuple[bytes, str]] = {}
    trailing: list[Message] = []
    parent_run: str | None = None
    task: dict[str, Any] | None = None
    agent: str | None = None
    user: str | None = None
    group_id: str | None = None
    rollout_index: int | None = None
    metadata: dict[str, Any] = {}
    created_at: float = 0.0
    completed_at: float = 0.0


def place_run(run: Run, place: str, which: str = "") -> None:
    """Say of a run that nothing names whether its file is that run alone, or it is a row among others, by its place."""
    if place == "$":
        run.grows_as = which
    else:
        run.file_as = which


class Note(msgspec.Struct, kw_only=True, frozen=True):
    """Something that was skipped, or read otherwise than it says. `place`: line, member or path within the file."""

    file: str
    place: str
    why: str
    hint: str | None = None
    lost: bool = True  # false: nothing is lost, it is only said


def linear_steps(
    messages: list[Message], *, tools: list[Tool] | None = None, begin: int = 0, shown: int = 0, **fields: Any
) -> tuple[list[Step], list[Message]]:
    """A conversation as steps: one for each assistant's message from `begin` on, whose prompt is everything before it;
    and what comes after the last. `fields` go on every step.

    Replies whose prompts would hold more than limits.MAX_PROMPTS messages together, with the `shown` of other steps of
    the run, are no steps: they are in what comes after. The loader says so.
    """
    steps: list[Step] = []
    end = begin
    for index in range(begin, len(messages)):
        message = messages[index]
        if message.role != "assistant":
            continue
        shown += index
        if shown > limits.MAX_PROMPTS:
            break
        steps.append(
            Step(
                step_id=str(len(steps)),
                trajectory_id="",
                parent_step_id=steps[-1].step_id if steps else None,
                prompt_messages=messages[:index],
                tools=tools,
                response_message=message,
                **fields,
            )
        )
        end = index + 1
    return steps, messages[end:]
