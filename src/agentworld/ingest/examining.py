"""What a run holds, each part looked at once: its digest, and how much of everything there is."""

from __future__ import annotations

import hashlib
import operator
from typing import Any

import msgspec

from agentworld.ingest.run import Run
from agentworld.records import Message, Step, exact_json
from agentworld.records.ids import framed

_SIZE = 16
_PIECE = 2047
_HASHED_AT_ONCE = 64 * 1024
_rest = operator.attrgetter(*(name for name in Step.__struct_fields__ if name not in ("prompt_messages", "tools")))
_rest_of_run = operator.attrgetter(*(name for name in Run.__struct_fields__ if name not in ("steps", "media")))


class Facts(msgspec.Struct, frozen=True):
    """`digest`: 32 hex digits over all that the file says in the run, equal on every machine. `messages`, `tool_calls`
    and `tool_results` count what several prompts show once.
    """

    digest: str
    steps: int
    messages: int
    tool_calls: int
    tool_results: int


class _Counter:
    def __init__(self) -> None:
        self.messages = self.tool_calls = self.tool_results = 0

    def add(self, message: Message) -> None:
        self.messages += 1
        self.tool_calls += len(message.tool_calls)
        if message.role == "tool":
            self.tool_results += 1


def examine(run: Run) -> Facts:
    """Look at a run. Steps cost what they add to the step that they go on from, or to the one before them."""
    hashed = hashlib.blake2b(digest_size=_SIZE)
    counter = _Counter()
    known: dict[str, Step] = {}
    last: Step | None = None
    parts: list[bytes] = []
    size = 0
    for step in run.steps:
        parent = known.get(step.parent_step_id or "", last)
        prompt = step.prompt_messages
        shared = _shared(parent, prompt)
        new = prompt[shared:] if prompt is not None else None
        for message in new or ():
            counter.add(message)
        if step.response_message is not None:
            counter.add(step.response_message)
        same_tools = parent is not None and step.tools is parent.tools
        parts.append(
            exact_json.encode(
                (shared, prompt is None, new, same_tools, None if same_tools else step.tools, _rest(step))
            )
        )
        size += len(parts[-1])
        if size > _HASHED_AT_ONCE:
            _update(hashed, parts)
            size = 0
        known[step.step_id] = last = step
    for message in run.trailing:
        counter.add(message)
    parts.append(exact_json.encode((_rest_of_run(run), sorted(run.media))))
    _update(hashed, parts)
    return Facts(hashed.hexdigest(), len(run.steps), counter.messages, counter.tool_calls, counter.tool_results)


def _shared(parent: Step | None, prompt: list[Message] | None) -> int:
    """How many messages at the beginning are those of the parent's prompt and reply."""
    if parent is None or not prompt:
        return 0
    before = parent.prompt_messages or []
    count = len(before)
    if len(prompt) >= count and prompt[:count] == before:
        return count + 1 if len(prompt) > count and prompt[count] == parent.response_message else count
    same = 0
    for mine, its in zip(prompt, before, strict=False):
        if mine is not its and mine != its:
            break
        same += 1
    return same


def _update(hashed: Any, parts: list[bytes]) -> None:
    """Hash the parts, each framed, and forget them; in pieces for which the interpreter's lock is not let go."""
    data = framed(*parts)
    parts.clear()
    left = memoryview(data)
    for begin in range(0, len(data), _PIECE):
        hashed.update(left[begin : begin + _PIECE])


def name_of(format: str, native_id: str | None, digest: str, place: int) -> str:
    """The id of a run in the pool: of what the file calls it, or of its content and its number in the file."""
    named = ["named", format, native_id] if native_id is not None else ["unnamed", format, digest, place]
    return f"{format}-{hashlib.blake2b(exact_json.encode(named), digest_size=12).hexdigest()}"
