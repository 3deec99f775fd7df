"""Steps as Arrow tables, without lists of Python in between. Needs pyarrow (extras `ray` and `parquet`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agentworld.forest import TokenArray
from agentworld.records import Step, exact_json


class StepRest(NamedTuple):
    """What a table has of a step beside its record: of its trajectory, and its arrays, each None where it has none.

    `mask` is None too where the policy sampled every id.
    """

    status: str
    trajectory_reward: float | None
    prompt: TokenArray | None = None
    response: TokenArray | None = None
    mask: npt.NDArray[np.uint8] | None = None
    logprobs: npt.NDArray[np.float32] | None = None


class Column(NamedTuple):
    """A column's Arrow type, and its value of one step."""

    type: Any
    value: Callable[[Step], Any]


def _json(value: Any) -> str | None:
    return exact_json.encode(value).decode() if value else None


_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()
# Those of every table, in order.
COLUMNS: dict[str, Column] = {
    "step_id": Column(_TEXT, lambda step: step.step_id),
    "trajectory_id": Column(_TEXT, lambda step: step.trajectory_id),
    "group_id": Column(_TEXT, lambda step: step.group_id),
    "channel": Column(_TEXT, lambda step: step.channel),
    "step_index": Column(_WHOLE, lambda step: step.step_index),
    "parent_step_id": Column(_TEXT, lambda step: step.parent_step_id),
    "fork_reason": Column(_TEXT, lambda step: step.fork_reason),
    "agent": Column(_TEXT, lambda step: step.agent),
    "model": Column(_TEXT, lambda step: step.model),
    "policy_model": Column(_TEXT, lambda step: step.policy.model if step.policy else None),
    "policy_run": Column(_TEXT, lambda step: step.policy.run if step.policy else None),
    "policy_version": Column(_WHOLE, lambda step: step.policy.version if step.policy else None),
    "token_source": Column(_TEXT, lambda step: step.token_source),
    "vocabulary": Column(_TEXT, lambda step: step.vocabulary),
    "logprob_space": Column(_TEXT, lambda step: step.logprob_space),
    "prompt_length": Column(_WHOLE, lambda step: step.prompt_length),
    "response_length": Column(_WHOLE, lambda step: step.response_length),
    "finish_reason": Column(_TEXT, lambda step: step.finish_reason),
    "reward": Column(_REAL, lambda step: step.reward),
    "rewards": Column(_TEXT, lambda step: _json(step.rewards)),
    "labels": Column(_TEXT, lambda step: _json(step.labels)),
    "readiness": Column(_TEXT, lambda step: step.readiness),
    "excluded_reason": Column(_TEXT, lambda step: step.excluded_reason),
    "late": Column(pa.bool_(), lambda step: step.late),
    "is_last": Column(pa.bool_(), lambda step: step.is_last),
    "created_at": Column(_REAL, lambda step: step.created_at),
    "metadata": Column(_TEXT, lambda step: _json(step.metadata)),
}
_MESSAGES: dict[str, Column] = {
    "prompt_messages": Column(_TEXT, lambda step: _json_of(step.prompt_messages)),
    "response_message": Column(_TEXT, lambda step: _json_of(step.response_message)),
    "tools": Column(_TEXT, lambda step: _json_of(step.tools)),
}


def _json_of(value: Any) -> str | None:
    return None if value is None else exact_json.encode(value).decode()


def steps_table(steps: Sequence[Step], rests: Sequence[StepRest], include: Sequence[str]) -> Any:
    """A pyarrow.Table with a row a step.

    `COLUMNS`, the `status` and the `trajectory_reward` of its trajectory, and as `include` asks (tokens, logprobs,
    messages): `prompt_ids` and `response_ids` (list<uint32>), `response_mask` (list<uint8>, null where the policy
    sampled every id), `response_logprobs` (list<float32>, NaN where the engine gave none), and `prompt_messages`,
    `response_message` and `tools` as JSON text. Other JSON texts are null where they are empty.
    """
    columns = {name: pa.array([column.value(step) for step in steps], column.type) for name, column in COLUMNS.items()}
    columns["status"] = pa.array([each.status for each in rests], _TEXT)
    columns["trajectory_reward"] = pa.array([each.trajectory_reward for each in rests], _REAL)
    if "tokens" in include:
        columns["prompt_ids"] = _lists([each.prompt for each in rests], np.uint32)
        columns["response_ids"] = _lists([each.response for each in rests], np.uint32)
        columns["response_mask"] = _lists([each.mask for each in rests], np.uint8)
    if "logprobs" in include:
        columns["response_logprobs"] = _lists([each.logprobs for each in rests], np.float32)
    if "messages" in include:
        for name, column in _MESSAGES.items():
            columns[name] = pa.array([column.value(step) for step in steps], column.type)
    return pa.table(columns)


def _lists(arrays: Sequence[npt.NDArray[Any] | None], dtype: type[np.generic]) -> Any:
    """A list column with one copy of the values."""
    lengths = np.array([0 if array is None else len(array) for array in arrays], dtype=np.int64)
    offsets = np.zeros(len(arrays) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    there = [array for array in arrays if array is not None and len(array)]
    values = np.concatenate(there).astype(dtype, copy=False) if there else np.zeros(0, dtype=dtype)
    missing = pa.array([array is None for array in arrays], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=missing)
