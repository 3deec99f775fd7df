"""What identifies the content of a step, a row and a version: the same on every store and machine.

A step's digest is over what was given to the model and what it sampled: ids (uint32), mask, log-probabilities
(float32; null is one NaN), messages, tools, sampling, policy, version spans, model, vocabulary and where it stands
(parent, fork reason, agent). A mask of ones is an absent one, no ids are absent ids, and tools are compared whatever
the order of their keys. Ids, rewards, labels and feedback are in the digest of the row.

Each digest is BLAKE2b-128 over parts that are framed by their lengths. JSON is compact with sorted keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.pool.arrays import StepArrays
from agentworld.records import DATASET_FORMAT, DatasetRow, DatasetVersion, Message, Step, exact_json
from agentworld.records.ids import DIGEST_SIZE, digest

_REMEMBERED = 4  # prompts that the next one may extend: a trajectory's branches take turns
_ABSENT = b""
_FORMAT = str(DATASET_FORMAT).encode()
_NOTHING: tuple[Any, ...] = (None, [], {})
_NAN = np.float32(np.nan)
_sorted = msgspec.json.Encoder(order="sorted")

Ids = npt.NDArray[np.uint32]


class StepDigests:
    """Digests of steps, cheapest where one trajectory's come after each other: a prompt that extends one of the last
    few costs what is new in it.
    """

    def __init__(self) -> None:
        self._chains: list[tuple[list[Message], list[bytes]]] = []
        self._ids: list[tuple[Ids, Any]] = []
        self._tools: tuple[Any, bytes] = (None, _ABSENT)

    def of(self, step: Step, arrays: StepArrays | None = None) -> str:
        """32 hex digits. The step has its messages, and its ids unless they come as `arrays`."""
        prompt, response, mask, logprobs = _own_arrays(step) if arrays is None else _given_arrays(arrays)
        said = {
            "model": step.model,
            "policy": step.policy,
            "version_spans": step.version_spans,
            "sampling": step.sampling,
            "logprob_space": step.logprob_space,
            "vocabulary": step.vocabulary,
            "token_source": step.token_source,
            "finish_reason": step.finish_reason,
            "parent_step_id": step.parent_step_id,
            "fork_reason": step.fork_reason,
            "agent": step.agent,
        }
        return digest(
            b"step",
            _FORMAT,
            self._of_ids(prompt),
            _ABSENT if response is None else response.astype("<u4", copy=False).tobytes(),
            _ABSENT if mask is None else mask.astype(np.uint8).tobytes(),
            _ABSENT if logprobs is None else _plain_floats(logprobs),
            self._of_prompt(step.prompt_messages),
            self._of_tools(step.tools),
            _ABSENT if step.response_message is None else canonical(step.response_message),
            canonical(said),
        ).hex()

    def _of_ids(self, ids: Ids | None) -> bytes:
        """The digest of the ids as uint32, going on from the longest prompt that they begin with."""
        if ids is None:
            return _ABSENT
        best: tuple[int, Any] = (0, None)
        for known, hashed in self._ids:
            if best[0] < len(known) <= len(ids) and np.array_equal(known, ids[: len(known)]):
                best = (len(known), hashed)
        state = hashlib.blake2b(digest_size=DIGEST_SIZE) if best[1] is None else best[1].copy()
        state.update(ids[best[0] :].astype("<u4", copy=False).tobytes())
        self._ids = [(ids, state), *self._ids][:_REMEMBERED]
        return bytes(state.digest())

    def _of_prompt(self, messages: Sequence[Message] | None) -> bytes:
        """The last key of the chain of messages, going on from the prompt with which it shares most."""
        if messages is None:
            return _ABSENT
        keys: list[bytes] = []
        for known, chain in self._chains:
            shared = _shared(known, messages)
            if shared > len(keys):
                keys = chain[:shared]
            if shared == len(known):
                break
        last = keys[-1] if keys else digest(b"messages")
        for message in messages[len(keys) :]:
            last = digest(last, canonical(message))
            keys.append(last)
        self._chains = [(list(messages), keys), *self._chains][:_REMEMBERED]
        return last

    def _of_tools(self, tools: Any) -> bytes:
        if not tools:
            return _ABSENT
        # By identity: what is equal need not be the same, as 1, 1.0 and true are.
        if self._tools[0] is not tools:
            self._tools = (tools, canonical(tools))
        return self._tools[1]


def task_digest(task: dict[str, Any] | None) -> str | None:
    """32 hex digits over the task of a trajectory; None for none."""
    return digest(b"whole task", canonical(_plain(task))).hex() if task else None


def row_digest(row: DatasetRow) -> str:
    """32 hex digits over everything in the row but its position and its digest."""
    return digest(b"row", _FORMAT, canonical(_fields(row, ("position", "digest")))).hex()


class VersionDigest:
    """The digest of a version, row by row in the order of positions."""

    def __init__(self) -> None:
        self._hashed = hashlib.blake2b(digest(b"dataset", _FORMAT), digest_size=DIGEST_SIZE)

    def add(self, row: DatasetRow) -> None:
        """Take in the digest and the split of the next row."""
        self._hashed.update(digest(row.digest.encode(), row.split.encode()))

    def hexdigest(self) -> str:
        """32 hex digits over what was added."""
        return self._hashed.hexdigest()


def manifest_digest(version: DatasetVersion) -> str:
    """32 hex digits over the manifest but for this digest itself."""
    return digest(b"manifest", canonical(_fields(version, ("manifest_digest",)))).hex()


def canonical(value: Any) -> bytes:
    """Compact JSON with sorted keys. Two lone surrogates that make a pair are the character of the pair, as in JSON."""
    try:
        return _sorted.encode(value)
    except UnicodeEncodeError:
        plain = exact_json.decode(exact_json.encode_lenient(value))
    try:
        return _sorted.encode(plain)
    except UnicodeEncodeError:
        return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """JSON values, without fields that say nothing, and with no zero that is negative, which not every store keeps."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _fields(record: msgspec.Struct, left_out: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a record that say something."""
    named = (name for name in record.__struct_fields__ if name not in left_out)
    return {name: value for name in named if (value := _plain(getattr(record, name))) not in _NOTHING}


def _shared(known: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many messages both begin with."""
    count = 0
    for mine, yours in zip(known, messages, strict=False):
        if mine is not yours and mine != yours:
            break
        count += 1
    return count


def _given_arrays(
    arrays: StepArrays,
) -> tuple[Ids | None, Ids | None, npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    prompt, response = arrays.ids[: arrays.prompt_length], arrays.ids[arrays.prompt_length :]
    return _normal(prompt, response, arrays.mask, arrays.logprobs)


def _own_arrays(step: Step) -> tuple[Ids | None, Ids | None, npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    prompt, response = (
        None if ids is None else np.asarray(ids, np.uint32) for ids in (step.prompt_ids, step.response_ids)
    )
    mask = None if step.response_mask is None else np.asarray(step.response_mask, np.uint8)
    given = step.response_logprobs
    return _normal(prompt, response, mask, None if given is None else np.asarray(given, np.float32))


def _normal(
    prompt: Ids | None, response: Ids | None, mask: npt.NDArray[Any] | None, logprobs: npt.NDArray[Any] | None
) -> tuple[Ids | None, Ids | None, npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    """One spelling of what means the same."""
    return (
        prompt if prompt is not None and len(prompt) else None,
        response if response is not None and len(response) else None,
        None if mask is None or mask.all() else mask,
        logprobs if logprobs is not None and len(logprobs) else None,
    )


def _plain_floats(logprobs: npt.NDArray[Any]) -> bytes:
    """float32, little-endian, with one NaN."""
    numbers = logprobs.astype("<f4", copy=True)
    numbers[np.isnan(numbers)] = _NAN
    return numbers.tobytes()
