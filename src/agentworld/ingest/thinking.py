"""What replies of plain chat think between `<think>` and `</think>` before they say something, as their reasoning."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agentworld.ingest.run import Run
from agentworld.records import Message

_OPEN, _CLOSE = "<think>", "</think>"


def split_thinking(run: Run) -> int:
    """Split the replies of a run, and show prompts them so; returns how many messages are split.

    A message is split where its text begins with a whole thought and it has no other reasoning. White space around the
    thought is that of the template, and is left out.
    """
    last = run.steps[-1].prompt_messages if run.steps else None
    said = (step.response_message for step in run.steps)
    if not any(map(_thinks, (*said, *(last or ()), *run.trailing))):
        return 0
    made: dict[int, Message] = {}  # by the identity of messages, which prompts share

    def split(messages: Iterable[Message]) -> list[Message]:
        for message in messages:
            if id(message) not in made and _thinks(message):
                made[id(message)] = _split(message)
        return [made.get(id(message), message) for message in messages]

    kept = [*run.trailing], [(step.prompt_messages, step.response_message) for step in run.steps]  # alive, as ids are
    run.trailing = split(run.trailing)
    for step in run.steps:
        if step.response_ids is not None:
            continue  # What was sampled is known.
        if step.prompt_messages is not None:
            step.prompt_messages = split(step.prompt_messages)
        if step.response_message is not None:
            (step.response_message,) = split([step.response_message])
    del kept
    return len(made)


def _thinks(message: Message | None) -> bool:
    if message is None or message.role != "assistant" or message.reasoning is not None:
        return False
    text = message.content
    return isinstance(text, str) and _CLOSE in text and text.lstrip().startswith(_OPEN)


def _split(message: Message) -> Message:
    assert isinstance(message.content, str)
    thought, _, text = message.content.lstrip().removeprefix(_OPEN).partition(_CLOSE)
    content = text.lstrip() or (None if message.tool_calls else "")
    return msgspec.structs.replace(message, content=content, reasoning=thought.strip())
