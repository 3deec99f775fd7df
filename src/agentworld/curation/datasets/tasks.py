"""Which task a trajectory works on, and the text that tells whether two tasks are nearly the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentworld.curation.datasets.digests import canonical
from agentworld.records import Message, Step, Trajectory
from agentworld.records.ids import digest

_TEXT_KEYS = ("content", "text")
_MOST_NESTED = 8


def named_task(trajectory: Trajectory) -> str | None:
    """The key of its task as the task itself tells: `SET/ID`, or the digest of its prompt; None where it tells not."""
    task = trajectory.task or {}
    name = task.get("task_id")
    if isinstance(name, str | int) and not isinstance(name, bool) and name != "":
        return f"{task.get('task_set') or ''}/{name}"[:512]
    prompt = _prompt(task)
    return f"prompt:{digest(b'prompt', canonical(prompt)).hex()}" if prompt else None


def first_messages(step: Step | None) -> list[Message]:
    """What a trajectory began with: the first step's prompt up to the first reply in it."""
    found: list[Message] = []
    for message in (step.prompt_messages or ()) if step is not None else ():
        if message.role == "assistant":
            break
        found.append(message)
    return found


def begun_with(messages: Sequence[Message]) -> str | None:
    """The key of a task that only the conversation tells."""
    return f"messages:{digest(b'messages', *map(canonical, messages)).hex()}" if messages else None


def task_text(trajectory: Trajectory) -> str:
    """The text of the task's prompt, what is said to the user's part of it only; "" where it has none."""
    return _text(_prompt(trajectory.task or {}), 0).strip()


def user_text(messages: Sequence[Message]) -> str:
    """The text of the first message of a user; without one, of all."""
    for message in messages:
        if message.role == "user" and message.text.strip():
            return message.text.strip()
    return "\n".join(message.text for message in messages).strip()


def _prompt(task: dict[str, Any]) -> Any:
    return next((task[name] for name in ("prompt", "messages", "question", "instruction") if task.get(name)), None)


def _text(value: Any, depth: int) -> str:
    """The texts of a prompt, be it text, a message, or lists of these; system messages say the same of many tasks."""
    if isinstance(value, str):
        return value
    if depth >= _MOST_NESTED:
        return ""
    if isinstance(value, dict):
        if value.get("role") in ("system", "developer"):
            return ""
        return "\n".join(_text(value[name], depth + 1) for name in _TEXT_KEYS if name in value)
    if isinstance(value, list | tuple):
        return "\n".join(filter(None, (_text(each, depth + 1) for each in value)))
    return ""
