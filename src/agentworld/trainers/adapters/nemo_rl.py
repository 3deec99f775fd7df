"""NeMo-RL's training data: right-padded, aligned with the ids, and a mask over rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentworld.trainers.adapters.adapter import RowAdapter, needs_of
from agentworld.trainers.adapters.padding import Array, padded, tensors
from agentworld.trainers.adapters.samples import SampleOptions, Samples

# What NeMo-RL calls the annotations that pools have.
COLUMNS = {"reference_logprobs": "reference_policy_logprobs"}


class NemoRlOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `nemo_rl`. `multiple`: L is a multiple of it. `temperature`: the trainer's, where rows have to be
    of it. `BatchedDataDict` takes what comes.
    """

    pad_id: int = 0
    multiple: int = 1
    temperature: float | None = None


def lay(samples: Samples, options: NemoRlOptions) -> dict[str, Any]:
    """B rows of L ids. `input_ids`, `token_mask` int64 [B, L]; `generation_logprobs`, `advantages` float32 [B, L];
    `input_lengths` int64 [B]; `sample_mask` float32 [B], 0 for rows of a group's statistics alone. A value stands at
    the id that it is of, 0 at prompts.
    """
    samples.no_parts_of_weights()
    samples.one_temperature(options.temperature)
    rows = samples.rows
    longest = max((len(row.ids) for row in rows), default=0)
    length = -(-longest // options.multiple) * options.multiple

    def wide(values: list[Array], dtype: Any) -> Array:
        placed = [row.whole(each) for row, each in zip(rows, values, strict=True)]
        return padded(placed, 0, dtype, length=length)

    columns: dict[str, Array] = {
        "input_ids": padded([row.ids for row in rows], options.pad_id, np.int64, length=length),
        "input_lengths": np.asarray([len(row.ids) for row in rows], np.int64),
        "token_mask": wide([row.response_mask for row in rows], np.int64),
        "sample_mask": np.asarray([row.response_mask.any() for row in rows], np.float32),
        "generation_logprobs": wide([row.need_logprobs() for row in rows], np.float32),
        "advantages": wide([row.need_advantages() for row in rows], np.float32),
    }
    for name in options.annotations:
        columns[COLUMNS.get(name, name)] = wide([row.annotations[name] for row in rows], np.float32)
    return tensors(columns)


ADAPTER = RowAdapter("nemo_rl", "NeMo-RL's training data", needs_of(NemoRlOptions, *COLUMNS), NemoRlOptions, lay)
