"""Frozen trajectories on their way between a server and its client: what steps have in common goes once.

A step says with how much of an earlier one's conversation, and of its ids, it begins; only the rest follows. So a
trajectory takes what is new in each step, as in the pool, and what is unpacked shares messages and memory again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from agentworld.curation.datasets.frozen import FrozenTrajectory, SkippedRow
from agentworld.errors import InvalidRequestError
from agentworld.forest import TokenArray
from agentworld.pool.arrays import StepArrays, frozen
from agentworld.pool.step_arrays import restore_arrays
from agentworld.records import DatasetRow, Message, Step, Tool, Trajectory, exact_json

_REMEMBERED = 4  # steps that the next one may go on from: a trajectory's branches take turns


class Beginning(msgspec.Struct, frozen=True, array_like=True):
    """The first `length` of the step number `of` of the same trajectory, counted from 0."""

    of: Annotated[int, msgspec.Meta(ge=0)]
    length: Annotated[int, msgspec.Meta(ge=0)]


class PackedArrays(msgspec.Struct, frozen=True, omit_defaults=True):
    """See StepArrays. `ids`: those after `begins`, a beginning of another step's prompt and reply, as uint32; `mask`: a
    byte a token; `logprobs`: float32, NaN for null. Little-endian, in base64.
    """

    prompt_length: int
    ids: bytes
    begins: Beginning | None = None
    mask: bytes | None = None
    logprobs: bytes | None = None


class PackedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step without what it shares. `step`: its facts and reply, and of its prompt the messages after `messages`, a
    beginning of another's prompt and reply. `tools`: whose tools it has; null where they are its own.
    """

    step: Step
    messages: Beginning | None = None
    tools: Annotated[int, msgspec.Meta(ge=0)] | None = None
    arrays: PackedArrays | None = None


class PackedTrajectory(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row with its trajectory and steps, or why it cannot be read any more."""

    row: DatasetRow
    trajectory: Trajectory | None = None
    steps: list[PackedStep] = []
    skipped: SkippedRow | None = None


class PackedPage(msgspec.Struct, frozen=True):
    """Frozen trajectories in order. `next_after`: the position after which the next page begins; null after the last
    one.
    """

    items: list[PackedTrajectory]
    next_after: int | None = None


def pack(found: FrozenTrajectory) -> PackedTrajectory:
    """As it travels, with the ids of `found.arrays`."""
    said, ids, tools = _Said(), _Ids(), _Tools()
    steps = []
    for number, step in enumerate(found.steps):
        rest, messages = said.pack(number, step)
        own, same = tools.pack(number, step)
        arrays = found.arrays.get(step.step_id)
        steps.append(
            PackedStep(
                step=msgspec.structs.replace(step, prompt_messages=rest, tools=own),
                messages=messages,
                tools=same,
                arrays=None if arrays is None else ids.pack(number, arrays),
            )
        )
    return PackedTrajectory(row=found.row, trajectory=found.trajectory, steps=steps)


def unpack(packed: PackedTrajectory) -> FrozenTrajectory | SkippedRow:
    """As it was; InvalidRequestError where a step begins with what is not there."""
    if packed.skipped is not None or packed.trajectory is None:
        row = packed.row
        return packed.skipped or SkippedRow(row.position, row.trajectory_id, row.split, "missing")
    steps: list[Step] = []
    sequences: dict[int, _Growing] = {}
    arrays: dict[str, StepArrays] = {}
    try:
        for number, one in enumerate(packed.steps):
            steps.append(_unpacked(one, steps))
            if one.arrays is not None:
                sequences[number] = _sequence(one.arrays, sequences)
                arrays[one.step.step_id] = _arrays(one, sequences[number].ids)
    except (LookupError, ValueError):
        raise InvalidRequestError(f"{packed.row.trajectory_id} did not arrive whole", path="items") from None
    return FrozenTrajectory(row=packed.row, trajectory=packed.trajectory, steps=steps, arrays=arrays)


def with_ids(found: FrozenTrajectory, include: Sequence[str]) -> FrozenTrajectory:
    """The same with its ids and masks (tokens) and log-probabilities (logprobs) as lists on the steps."""
    for step in found.steps:
        one = found.arrays.get(step.step_id)
        ids = np.zeros(0, np.uint32) if one is None else one.ids
        prompt = None if step.prompt_length is None else ids[: step.prompt_length]
        reply = None if step.response_length is None else ids[step.prompt_length or 0 :]
        mask, logprobs = (None, None) if one is None else (one.mask, one.logprobs)
        restore_arrays(step, prompt, reply, mask, logprobs, include)
    return msgspec.structs.replace(found, arrays={})


class _Said:
    """The latest conversations."""

    def __init__(self) -> None:
        self._known: list[tuple[int, list[Message]]] = []

    def pack(self, number: int, step: Step) -> tuple[list[Message] | None, Beginning | None]:
        prompt = step.prompt_messages
        if prompt is None:
            return None, None
        best, longest = 0, 0
        for other, known in self._known:
            length = 0
            for mine, theirs in zip(prompt, known, strict=False):
                if mine is not theirs and mine != theirs:
                    break
                length += 1
            if length > longest:
                best, longest = other, length
                if length == len(known):
                    break
        self._known = [(number, _conversation(step)), *self._known][:_REMEMBERED]
        return prompt[longest:], Beginning(best, longest) if longest else None


class _Ids:
    """The latest sequences of ids."""

    def __init__(self) -> None:
        self._known: list[tuple[int, TokenArray]] = []

    def pack(self, number: int, arrays: StepArrays) -> PackedArrays:
        ids = arrays.ids
        best, longest = 0, 0
        for other, known in self._known:
            most = min(len(ids), len(known))
            if most <= longest:
                continue
            apart = ids[:most] != known[:most]
            length = int(apart.argmax()) if apart.any() else most
            if length > longest:
                best, longest = other, length
                if length == len(known):
                    break
        self._known = [(number, ids), *self._known][:_REMEMBERED]
        return PackedArrays(
            prompt_length=arrays.prompt_length,
            ids=ids[longest:].astype("<u4", copy=False).tobytes(),
            begins=Beginning(best, longest) if longest else None,
            mask=None if arrays.mask is None else arrays.mask.tobytes(),
            logprobs=None if arrays.logprobs is None else arrays.logprobs.astype("<f4", copy=False).tobytes(),
        )


class _Tools:
    """Sets of tools, by their JSON: equal ones need not be the same, as 1, 1.0 and true are."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def pack(self, number: int, step: Step) -> tuple[list[Tool] | None, int | None]:
        if step.tools is None:
            return None, None
        first = self._known.setdefault(exact_json.encode(step.tools), number)
        return (step.tools, None) if first == number else (None, first)


def _unpacked(packed: PackedStep, steps: Sequence[Step]) -> Step:
    step, begins = packed.step, packed.messages
    if begins is not None:
        known = _conversation(steps[begins.of])
        if begins.length > len(known):
            raise ValueError
        step.prompt_messages = [*known[: begins.length], *(step.prompt_messages or ())]
    if packed.tools is not None:
        step.tools = steps[packed.tools].tools
    return step


def _conversation(step: Step) -> list[Message]:
    reply = () if step.response_message is None else (step.response_message,)
    return [*(step.prompt_messages or ()), *reply]


class _Growing:
    """A sequence in memory that those that go on from the end of it share."""

    def __init__(self, memory: TokenArray, length: int) -> None:
        self._memory, self._length = memory, length
        self._taken = [length]  # of the memory, by whoever shares it

    @property
    def ids(self) -> TokenArray:
        return frozen(self._memory[: self._length])

    def grown(self, begins: int, more: TokenArray) -> _Growing:
        """Its first `begins` ids with `more` after them."""
        if begins > self._length:
            raise ValueError
        length = begins + len(more)
        if begins < self._taken[0] or length > len(self._memory):
            memory = np.empty(max(2 * length, 1024) if begins == self._length else length, np.uint32)
            memory[:begins] = self._memory[:begins]
            memory[begins:length] = more
            return _Growing(memory, length)
        self._memory[begins:length] = more
        other = _Growing(self._memory, length)
        other._taken = self._taken
        self._taken[0] = length
        return other


def _sequence(packed: PackedArrays, known: Mapping[int, _Growing]) -> _Growing:
    more = np.frombuffer(packed.ids, "<u4").astype(np.uint32)
    if packed.begins is None:
        return _Growing(more, len(more))
    return known[packed.begins.of].grown(packed.begins.length, more)


def _arrays(packed: PackedStep, ids: TokenArray) -> StepArrays:
    found = packed.arrays
    assert found is not None
    if not 0 <= found.prompt_length <= len(ids):
        raise ValueError
    return StepArrays(
        step_id=packed.step.step_id,
        trajectory_id=packed.step.trajectory_id,
        prompt_length=found.prompt_length,
        ids=ids,
        mask=None if found.mask is None else np.frombuffer(found.mask, np.uint8),
        logprobs=None if found.logprobs is None else np.frombuffer(found.logprobs, "<f4"),
    )
