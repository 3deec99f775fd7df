"""Steps as a tree of text, for tests and terminals.

`<usr> u </usr> <gen> [r:call]`: a prompt's messages by role, brackets around what was sampled. A continuation stands
one level deeper under the step that it continues and shows only its new messages. `arguments`: how many characters of
what a tool is called with are shown, as `call({"a": 1})`.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.records.message import Message
from agentworld.records.step import Step

_TAGS = {"system": "sys", "developer": "dev", "user": "usr", "assistant": "ast", "tool": "tool"}


def render_message(message: Message, width: int = 40, arguments: int = 0) -> str:
    """One message as `<role> text </role>`, its text on one line and cut at `width` characters."""
    tag = _TAGS[message.role]
    return f"<{tag}> {_said(message, width, arguments)} </{tag}>"


def render_reply(message: Message | None, width: int = 40, sampled: bool = True, arguments: int = 0) -> str:
    """A sampled reply as `<gen> [text:call]`; without brackets where it is not trained on."""
    said = _said(message, width, arguments) if message is not None else "?"
    return f"<gen> [{said}]" if sampled else f"<gen> {said}"


def render_step(step: Step, skip: int = 0, width: int = 40, arguments: int = 0) -> str:
    """One step on one line; its prompt's first `skip` messages are left out."""
    prompt = [render_message(message, width, arguments) for message in (step.prompt_messages or [])[skip:]]
    reply = render_reply(step.response_message, width, step.excluded_reason is None, arguments)
    marks = [f"({step.fork_reason})"] if step.fork_reason else []
    if step.excluded_reason:
        marks.append(f"(excluded: {step.excluded_reason})")
    return " ".join([*prompt, reply, *marks])


def render_tree(steps: Sequence[Step], width: int = 40, arguments: int = 0) -> str:
    """The steps of a trajectory (messages included), each continuation indented under its parent."""
    by_id = {step.step_id: step for step in steps}
    children: dict[str | None, list[Step]] = {}
    for step in steps:
        parent = step.parent_step_id if step.parent_step_id in by_id else None
        children.setdefault(parent, []).append(step)
    lines: list[str] = []
    stack = [(step, 0) for step in reversed(children.get(None, []))]
    while stack:
        step, depth = stack.pop()
        parent_step = by_id.get(step.parent_step_id or "")
        skip = len(parent_step.prompt_messages or []) + 1 if parent_step is not None else 0
        lines.append("  " * depth + render_step(step, skip, width, arguments))
        below = children.get(step.step_id, [])
        # A single child that simply continues stays on its parent's level, so that long runs read straight down.
        deeper = depth + 1 if len(below) > 1 else depth
        stack.extend((child, deeper) for child in reversed(below))
    return "\n".join(lines)


def _said(message: Message, width: int, arguments: int) -> str:
    text = _cut(message.text, width)
    pieces = [f"({' '.join(message.reasoning.split())[:width]})"] if message.reasoning else []
    if text:
        pieces.append(text)
    pieces.extend(f"<{part.media_type} {part.digest[:8]}>" for part in message.media)
    calls = [f":{call.function.name}{_called(call.function.arguments, arguments)}" for call in message.tool_calls]
    return " ".join(pieces) + "".join(calls)


def _called(given: str, most: int) -> str:
    return f"({_cut(given, most)})" if most else ""


def _cut(text: str, width: int) -> str:
    """On one line, and at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
