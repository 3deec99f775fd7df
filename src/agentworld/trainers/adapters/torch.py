"""Plain padded tensors, for loops of your own."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentworld.credit import Aggregation, loss_weights
from agentworld.errors import InvalidRequestError
from agentworld.trainers.adapters.adapter import RowAdapter, needs_of
from agentworld.trainers.adapters.padding import Array, Arrays, padded, positions, tensors
from agentworld.trainers.adapters.samples import SampleOptions, Samples


class TorchOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `torch`. `pad_id`: in `input_ids` behind each row. `aggregation`: of the loss weights. `arrays`:
    torch or numpy. `device`: where the tensors go. `length`: of all rows, else that of the longest.
    """

    pad_id: int = 0
    aggregation: Aggregation = "token_mean"
    arrays: Arrays = "torch"
    device: str = "cpu"
    length: int | None = None


def lay(samples: Samples, options: TorchOptions) -> dict[str, Any]:
    """B rows, right-padded to L.

    `input_ids`, `attention_mask`, `position_ids` int64 [B, L]; `loss_mask` bool [B, L]; `logprobs`, `advantages`
    float32 [B, L]; `weights` float32 [B, L], which sum to 1; `versions` int64 [B, L], -1 outside the mask;
    `temperatures`, `rewards` float32 [B]; every annotation that was asked for float32 [B, L]; `trajectory_ids`,
    `groups` and `step_ids`: lists [B]. What no row has (log-probabilities, advantages, versions, rewards) is left out.
    """
    rows = samples.rows
    lengths = [row.ids for row in rows]
    ids = padded(lengths, options.pad_id, np.int64, length=options.length)
    attention = padded([np.ones(len(each)) for each in lengths], 0, np.int64, length=ids.shape[1])
    columns: dict[str, Array] = {
        "input_ids": ids,
        "attention_mask": attention,
        "position_ids": positions(attention),
        "loss_mask": _wide(samples, [row.response_mask for row in rows], False, np.bool_, ids.shape[1]),
        "weights": _wide(samples, _weights(samples, options.aggregation), 0, np.float32, ids.shape[1]),
        "temperatures": np.asarray([row.temperature for row in rows], np.float32),
    }
    for name, fill, dtype in (("logprobs", 0, np.float32), ("advantages", 0, np.float32), ("versions", -1, np.int64)):
        values = [getattr(row, name) for row in rows]
        if rows and all_or_none(samples, name):
            columns[name] = _wide(samples, values, fill, dtype, ids.shape[1])
    for name in options.annotations:
        columns[name] = _wide(samples, [row.annotations[name] for row in rows], 0, np.float32, ids.shape[1])
    if rows and all_or_none(samples, "reward"):
        columns["rewards"] = np.asarray([row.reward for row in rows], np.float32)
    found = tensors(columns, options.arrays, options.device)
    found["trajectory_ids"] = [row.trajectory_id for row in rows]
    found["step_ids"] = [row.step_ids for row in rows]
    found["groups"] = [row.group for row in rows]
    return found


def all_or_none(samples: Samples, name: str) -> bool:
    """Whether all rows have it; InvalidRequestError where some have and some have not."""
    have = [getattr(row, name) is not None for row in samples.rows]
    if any(have) and not all(have):
        row = samples.rows[have.index(False)]
        raise InvalidRequestError(
            f"step {row.step_ids[0]} has no {name}, and others of the batch have",
            path=name,
            hint="Lease with require, or a where that leaves such trajectories out",
        )
    return all(have)


def _wide(samples: Samples, values: list[Any], fill: float, dtype: Any, length: int) -> Array:
    rows = zip(samples.rows, values, strict=True)
    return padded([row.whole(np.asarray(each, dtype), fill) for row, each in rows], fill, dtype, length=length)


def _weights(samples: Samples, aggregation: Aggregation) -> list[Array]:
    """Of each row float64 [R]; with `shared` per_path a token weighs in each row, as it is trained in each."""
    masks = [row.response_mask for row in samples.rows]
    parts = [row.shares[mask] for row, mask in zip(samples.rows, masks, strict=True)]
    flat = np.concatenate([np.zeros(0), *parts])
    own = np.repeat([row.denominator for row in samples.rows], [int(mask.sum()) for mask in masks])
    found = loss_weights(np.ones(len(flat), np.int64), own, shares=flat, aggregation=aggregation)
    placed, begin = [], 0
    for mask in masks:
        row = np.zeros(len(mask))
        count = int(mask.sum())
        row[mask] = found[begin : begin + count]
        begin += count
        placed.append(row)
    return placed


ADAPTER = RowAdapter("torch", "Padded tensors with masks and loss weights", needs_of(TorchOptions), TorchOptions, lay)
