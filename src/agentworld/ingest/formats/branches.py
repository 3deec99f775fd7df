"""Answers to one prompt as branches of one run, and which of them is preferred."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.ingest.run import Run, RunFeedback, linear_steps
from agentworld.records import Message


def preference(
    run: Run, before: list[Message], preferred: list[Message], other: list[Message], fields: dict[str, Any]
) -> None:
    """Add to an empty run what was said before, and two answers to it as branches, with a comparison of their first
    replies. `fields` go on every step.
    """
    run.steps, tail = linear_steps([*before, *preferred], **fields)
    run.trailing += tail
    replies = sum(message.role == "assistant" for message in before)
    first = run.steps[replies].step_id if len(run.steps) > replies else None
    parent = run.steps[min(replies, len(run.steps)) - 1].step_id if replies and run.steps else None
    second = add_branch(run, before, other, parent, fields)
    if first is not None and second is not None:
        run.feedback.append(RunFeedback(kind="comparison", step=first, other=second))


def add_branch(
    run: Run, before: list[Message], answer: list[Message], parent: str | None, fields: dict[str, Any]
) -> str | None:
    """Add another answer to what was said before; returns the key of its first step, None where it has no reply."""
    # About what the prompts hold that there are: half of what was said before, or all of it where they branch.
    shown = len(run.steps) * (len(before) + 1) // 2
    steps, tail = linear_steps([*before, *answer], begin=len(before), shown=shown, **fields)
    first: str | None = None
    for step in steps:
        key = str(len(run.steps))
        changes: dict[str, Any] = {"step_id": key, "parent_step_id": parent}
        if first is None:
            first, changes["fork_reason"] = key, "parallel"
        run.steps.append(msgspec.structs.replace(step, **changes))
        parent = key
    run.trailing += tail
    return first
