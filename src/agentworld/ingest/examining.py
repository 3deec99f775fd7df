"""What a run holds, each part looked at once: its digest, and how much of everything there is."""

from __future__ import annotations

import hashlib
import operator
from itertools import compress
from typing import Any, NamedTuple

import msgspec

from agentworld.ingest.run import Run
from agentworld.records import Message, Step, exact_json
from agentworld.records.ids import framed

_SIZE = 16
_PIECE = 2047
_HASHED_AT_ONCE = 64 * 1024
# Only what is said is hashed, so that a record with more fields has the same digest.
_STEP = [name for name in Step.__struct_fields__ if name not in ("prompt_messages", "tools")]
_RUN = [
    name
    for name in Run.__struct_fields__
    if name not in ("steps", "media", "file", "grows_as", "file_as", "held_by", "parts", "exported")
]
_of_step, _of_run = operator.attrgetter(*_STEP), operator.attrgetter(*_RUN)
_UNSAID_STEP = _of_step(Step(step_id="", trajectory_id=""))
_UNSAID_RUN = _of_run(Run(native_id=None))


class Facts(msgspec.Struct, frozen=True):
    """`digest`: 32 hex digits over all that the file says in the run, equal on every machine. `messages`, `tool_calls`
    and `tool_results` count what several prompts show once. `size`: bytes of all that as JSON, each part once.
    """

    digest: str
    steps: int
    messages: int
    tool_calls: int
    tool_results: int
    size: int


class _Turns:
    """The turns of a run as a tree, in which what prompts have in common is there once; node 0 is before them all."""

    def __init__(self) -> None:
        self.messages = self.tool_calls = self.tool_results = 0
        self._before = [0]
        self._said: list[Message | None] = [None]
        self._after: dict[tuple[int, Message | None], int] = {}  # of nodes so far, but for the latest
        self._entered = 1

    def add(self, node: int, message: Message) -> int:
        """A turn after a node, which may be there already, as another one."""
        self.messages += 1
        self.tool_calls += len(message.tool_calls)
        if message.role == "tool":
            self.tool_results += 1
        self._before.append(node)
        self._said.append(message)
        return len(self._before) - 1

    def follow(self, node: int, messages: list[Message]) -> int:
        """The node after these turns, those that are not there yet added."""
        for message in messages:
            # Nothing comes after the latest one, as in conversations that only go on.
            there = self._entered_after().get((node, message)) if node < len(self._before) - 1 else None
            node = there or self.add(node, message)
        return node

    def _entered_after(self) -> dict[tuple[int, Message | None], int]:
        for number in range(self._entered, len(self._before)):
            self._after.setdefault((self._before[number], self._said[number]), number)
        self._entered = len(self._before)
        return self._after

    def back(self, node: int, count: int) -> int:
        """The node so many turns before."""
        for _ in range(count):
            node = self._before[node]
        return node


class _Place(NamedTuple):
    """Where a step stands: its prompt, the node that it ends at, and that of its reply."""

    prompt: list[Message]
    reply: Message | None
    ended: int
    replied: int


_NOWHERE = _Place([], None, 0, 0)


def examine(run: Run) -> Facts:
    """Look at a run. Steps cost what they add to the step that they go on from, or to the one before them."""
    hashed = hashlib.blake2b(digest_size=_SIZE)
    turns = _Turns()
    known: dict[str, tuple[Step, _Place]] = {}
    last: tuple[Step | None, _Place] = (None, _NOWHERE)
    parts: list[bytes] = []
    size = waiting = 0
    for step in run.steps:
        parent, place = known.get(step.parent_step_id or "", last)
        prompt = step.prompt_messages or []
        shared = _shared(place, prompt)
        new = prompt[shared:]
        begun = place.replied if shared > len(place.prompt) else turns.back(place.ended, len(place.prompt) - shared)
        node = replied = turns.follow(begun, new)
        if step.response_message is not None:
            replied = turns.add(node, step.response_message)
        same_tools = parent is not None and step.tools is parent.tools
        tools = None if same_tools else step.tools
        said = (
            shared,
            step.prompt_messages is None,
            new,
            same_tools,
            tools,
            _said(_STEP, _of_step(step), _UNSAID_STEP),
        )
        parts.append(exact_json.encode(said))
        size += len(parts[-1])
        waiting += len(parts[-1])
        if waiting > _HASHED_AT_ONCE:
            _update(hashed, parts)
            waiting = 0
        known[step.step_id] = last = (step, _Place(prompt, step.response_message, node, replied))
    for message in run.trailing:
        turns.add(0, message)
    parts.append(exact_json.encode((_said(_RUN, _of_run(run), _UNSAID_RUN), sorted(run.media))))
    size += len(parts[-1])
    _update(hashed, parts)
    return Facts(hashed.hexdigest(), len(run.steps), turns.messages, turns.tool_calls, turns.tool_results, size)


def _shared(place: _Place, prompt: list[Message]) -> int:
    """How many messages at the beginning are those of the other step's prompt and reply."""
    before = place.prompt
    count = len(before)
    if len(prompt) >= count and prompt[:count] == before:
        return count + 1 if len(prompt) > count and prompt[count] == place.reply else count
    same = 0
    for mine, its in zip(prompt, before, strict=False):
        if mine is not its and mine != its:
            break
        same += 1
    return same


def _said(names: list[str], values: tuple[Any, ...], unsaid: tuple[Any, ...]) -> dict[str, Any]:
    """The fields that are not as they are by default."""
    others = compress(zip(names, values, unsaid, strict=True), map(operator.is_not, values, unsaid))
    return {name: value for name, value, default in others if value != default}


def _update(hashed: Any, parts: list[bytes]) -> None:
    """Hash the parts, each framed, and forget them; in pieces for which the interpreter's lock is not let go."""
    data = framed(*parts)
    parts.clear()
    left = memoryview(data)
    for begin in range(0, len(data), _PIECE):
        hashed.update(left[begin : begin + _PIECE])


def name_of(format: str, native_id: str | None, digest: str, occurrence: int, user: str | None = None) -> str:
    """The id of a run in the pool: of what the file calls it, or of its content and which of several equal ones in the
    file it is, from 1; where it has a user, of that too, so that one user's runs never stand for another's.
    """
    named = ["named", format, native_id] if native_id is not None else ["unnamed", format, digest, occurrence]
    if user is not None:
        named.append(user)
    return _named(format, named)


def name_of_session(format: str, run: Run, user: str | None = None) -> str:
    """The id of a run whose `session` others may have too, or that has none and may grow: of that and of what its first
    step says, so that it is the same however far the session has come. The reply is part of it where no session is,
    as it tells apart what was sampled for one task; a session file may end within it.
    """
    first = run.steps[0]
    named: list[Any] = ["session", format, run.session, first.prompt_messages, first.prompt_ids]
    if run.session is None:
        named = ["begun", format, run.grows_as, *named[3:], first.response_message, first.response_ids]
    if user is not None:
        named.append(user)
    return _named(format, named)


def _named(format: str, named: list[Any]) -> str:
    return f"{format}-{hashlib.blake2b(exact_json.encode(named), digest_size=12).hexdigest()}"
