"""What trajectories say of their tasks, in the words that trainers use."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.curation.exports.columns import NotPlain
from agentworld.curation.exports.rendering import Renderer
from agentworld.errors import InvalidRequestError
from agentworld.records import Message, Trajectory
from agentworld.trainers.adapters.samples import Sample


def reference_of(trajectory: Trajectory) -> str:
    """The task's reference answer as text; empty where it has none."""
    task = trajectory.task or {}
    found = next((task[name] for name in ("reference", "answer", "ground_truth") if task.get(name) is not None), "")
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def task_set_of(trajectory: Trajectory) -> str:
    """The task set's name, or the trajectory's channel."""
    return str((trajectory.task or {}).get("task_set") or trajectory.channel)


def prompt_of(sample: Sample) -> list[dict[str, Any]] | None:
    """The messages of the row's prompt; None where the batch has none (`require = ["messages"]`)."""
    messages = sample.steps[0].prompt_messages
    return None if messages is None else rendered(messages, sample.steps[0].step_id)


def rendered(messages: list[Message], step_id: str) -> list[dict[str, Any]]:
    """Messages as chat, with `reasoning_content` and arguments of tool calls as objects; images are refused."""
    try:
        return Renderer().messages(messages, last=-1)
    except NotPlain as reason:
        raise InvalidRequestError(
            f"step {step_id} has a message that chat rows cannot hold: {reason}",
            path="messages",
            hint="Leave such trajectories out with where, or use an export, which has columns for images",
        ) from None


def origin_of(sample: Sample) -> dict[str, Any]:
    """Where a row comes from, for `extra_info` and metadata."""
    task = sample.member.trajectory.task or {}
    return {
        "trajectory_id": sample.trajectory_id,
        "step_ids": sample.step_ids,
        "task_id": None if task.get("task_id") is None else str(task["task_id"]),
        "rollout": sample.rollout,
        "part": sample.part,
        "parts": sample.parts,
        "trajectory_tokens": sample.denominator,
    }


def version_range(sample: Sample) -> tuple[int | None, int | None]:
    """The oldest and the newest weights that sampled the row's tokens; None where a step names no policy."""
    if sample.versions is None:
        return None, None
    known = sample.versions[sample.versions >= 0]
    return (int(known.min()), int(known.max())) if len(known) else (None, None)
