"""AReaL's batch: a right-padded dictionary with the version of every sampled token, for its decoupled objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentworld.trainers.adapters.adapter import RowAdapter, needs_of
from agentworld.trainers.adapters.padding import Array, Arrays, padded, tensors
from agentworld.trainers.adapters.samples import SampleOptions, Samples


class ArealOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `areal`. `temperature`: the trainer's, where the batch has to be of it."""

    pad_id: int = 0
    arrays: Arrays = "torch"
    temperature: float | None = None


def lay(samples: Samples, options: ArealOptions) -> dict[str, Any]:
    """B rows, right-padded to L. `input_ids`, `loss_mask`, `versions` int32 [B, L], versions -1 outside the mask;
    `logprobs` float32 [B, L]; `attention_mask` bool [B, L]; `rewards` float32 [B].

    Every step must name its policy, and every trajectory have a primary reward.
    """
    samples.no_parts_of_weights()
    samples.one_temperature(options.temperature)
    rows = samples.rows
    columns: dict[str, Array] = {
        "input_ids": padded([row.ids for row in rows], options.pad_id, np.int32),
        "loss_mask": padded([row.whole(row.response_mask) for row in rows], 0, np.int32),
        "versions": padded([row.whole(row.need_versions(), -1) for row in rows], -1, np.int32),
        "attention_mask": padded([np.ones(len(row.ids), np.bool_) for row in rows], False, np.bool_),
        "logprobs": padded([row.whole(row.need_logprobs()) for row in rows], 0, np.float32),
        "rewards": np.asarray([row.need_reward() for row in rows], np.float32),
    }
    return tensors(columns, options.arrays)


ADAPTER = RowAdapter("areal", "AReaL's padded dictionary with versions", needs_of(ArealOptions), ArealOptions, lay)
