"""Runs as short texts, for tests: who came after whom, and what each reply was shown."""

from __future__ import annotations

from agentworld.ingest.run import Run
from agentworld.records import Message


def said(message: Message) -> str:
    """`user(Hello)`, `assistant(Hi; read)`, `tool call_1(text)`; an image is `<png>`, a long text is cut."""
    media = "".join(f"<{part.media_type.partition('/')[2]}>" for part in message.media)
    calls = "".join(f"; {call.function.name}" for call in message.tool_calls)
    named = f" {message.tool_call_id}" if message.tool_call_id else ""
    return f"{message.role}{named}({'null' if message.content is None else message.text[:40]}{media}{calls})"


def lineage(run: Run) -> list[str]:
    """One line a step: `1 <- 0 compaction explore: 3 => assistant(...)`, with how many messages it was shown."""
    lines = []
    for step in run.steps:
        marks = "".join(f" {mark}" for mark in (step.fork_reason, step.agent) if mark)
        shown = len(step.prompt_messages or ())
        lines.append(f"{step.step_id} <- {step.parent_step_id or '-'}{marks}: {shown} => {said(step.response_message)}")
    return lines
