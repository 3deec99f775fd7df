"""A trajectory as checks read it: turn by turn, each message once, where it is new."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import msgspec

from agentworld.pool.rules import undecided
from agentworld.records import BatchTrajectory, Message, Step, ToolCall, Trajectory

Place = int | Literal["reply"]
_NOTHING: tuple[Message, ...] = ()


class Call:
    """One tool call of a reply. `arguments` is the decoded JSON, or None where `malformed`."""

    __slots__ = ("arguments", "malformed", "name", "raw")

    def __init__(self, call: ToolCall) -> None:
        self.name = call.function.name
        self.raw = call.function.arguments
        self.arguments: Any = None
        self.malformed = False
        try:
            self.arguments = msgspec.json.decode(self.raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            self.malformed = True

    @property
    def key(self) -> tuple[str, str]:
        """Equal for calls of one tool with the same arguments, however they are spelled."""
        if self.malformed:
            return self.name, self.raw
        try:
            return self.name, msgspec.json.encode(self.arguments, order="sorted").decode()
        except (UnicodeError, RecursionError, msgspec.EncodeError):
            return self.name, self.raw


class Turn:
    """One step. `new`: the messages of its prompt that no earlier step has, each with its index in the prompt."""

    def __init__(self, step: Step, parent: Turn | None, before: Turn | None) -> None:
        self.step = step
        self.parent = parent
        prompt = step.prompt_messages or _NOTHING
        known = before.path if before is not None else _NOTHING
        self._told = before.step.tools if before is not None else None
        self.new: list[tuple[int, Message]] = [
            (at, message) for at, message in enumerate(prompt) if at >= len(known) or not _same(message, known[at])
        ]

    @property
    def reply(self) -> Message | None:
        """What was sampled."""
        return self.step.response_message

    @cached_property
    def path(self) -> list[Message]:
        """Prompt and reply."""
        path = list(self.step.prompt_messages or ())
        if self.step.response_message is not None:
            path.append(self.step.response_message)
        return path

    @cached_property
    def calls(self) -> list[Call]:
        """The tool calls of the reply."""
        reply = self.step.response_message
        return [Call(each) for each in reply.tool_calls] if reply is not None else []

    @cached_property
    def said(self) -> str:
        """All that the model wrote: reasoning, text, and the arguments of calls, a line each."""
        reply = self.step.response_message
        if reply is None:
            return ""
        parts = [reply.reasoning or "", reply.text, *(call.function.arguments for call in reply.tool_calls)]
        return "\n".join(part for part in parts if part)

    def tool_texts(self) -> Iterator[str]:
        """The texts in the tools that were offered, where the step before offered others."""
        tools = self.step.tools
        if not tools or tools is self._told or tools == self._told:
            return
        left: list[Any] = [tools]
        while left:
            value = left.pop()
            if isinstance(value, str):
                yield value
            elif isinstance(value, dict):
                left += [*value, *value.values()]
            elif isinstance(value, list):
                left += value

    def texts(self) -> Iterator[tuple[Place, str]]:
        """Every new text of this step with the message that holds it: the prompt's, then the reply's."""
        for at, message in self.new:
            yield from ((at, text) for text in _texts(message))
        reply = self.step.response_message
        if reply is not None:
            yield from (("reply", text) for text in _texts(reply))


class Run:
    """A trajectory with its turns in order."""

    def __init__(self, record: BatchTrajectory) -> None:
        self.record = record
        self.trajectory: Trajectory = record.trajectory
        self.turns: list[Turn] = []
        by_id: dict[str, Turn] = {}
        last: Turn | None = None
        for step in record.steps:
            parent = by_id.get(step.parent_step_id) if step.parent_step_id is not None else None
            last = Turn(step, parent, parent or last)
            by_id[step.step_id] = last
            self.turns.append(last)

    @classmethod
    def of(cls, record: BatchTrajectory | Run) -> Run:
        """`record` as a run; several checks may share one that was made."""
        return record if isinstance(record, Run) else cls(record)

    @cached_property
    def kept(self) -> list[Turn]:
        """The turns that stand: no retried, aborted or quarantined ones.

        What rules and people excluded stands: checks read what was captured, so that what follows from their labels
        changes no label.
        """
        return [turn for turn in self.turns if stands(turn.step)]

    @property
    def last(self) -> Turn | None:
        """The last turn that was not excluded and holds its reply's message."""
        return next((turn for turn in reversed(self.kept) if turn.reply is not None), None)


def stands(step: Step) -> bool:
    """Whether nothing but rules and people keeps the step back."""
    return undecided(step.excluded_reason) is None


def _texts(message: Message) -> Iterator[str]:
    if message.reasoning:
        yield message.reasoning
    if message.content:
        yield message.content if isinstance(message.content, str) else message.text
    for call in message.tool_calls:
        yield call.function.arguments


def _same(one: Message, other: Message) -> bool:
    """Whether a client sent back what is known: it may have left out the reasoning, or cut text into blocks."""
    return (
        one is other
        or one == other
        or (
            one.role == other.role
            and [call.function for call in one.tool_calls] == [call.function for call in other.tool_calls]
            and one.text == other.text
            and one.media == other.media
            and one.tool_call_id == other.tool_call_id
        )
    )
