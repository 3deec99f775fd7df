"""prime-rl's TrainingSample: lists over all ids, with a temperature for each."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from agentworld.trainers.adapters.adapter import RowAdapter, needs_of
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples
from agentworld.trainers.adapters.tasks import task_set_of


class PrimeRlOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `prime_rl`. `loss`: `rl`, or `ce` for cross entropy. Rows are the fields of TrainingSample."""

    loss: Literal["rl", "ce"] = "rl"


def lay(samples: Samples, options: PrimeRlOptions) -> list[dict[str, Any]]:
    """One a row, all lists of its L ids: `token_ids`, `mask` (bool), `logprobs` and `advantages` (0 outside the mask),
    `temperatures`, `rl_weights` and `ce_weights`: what the token weighs in that loss, 0 in the other; `env_name`: the
    task set.
    """
    return [_sample(row, options) for row in samples.rows]


def _sample(row: Sample, options: PrimeRlOptions) -> dict[str, Any]:
    nothing = np.zeros(len(row.response_ids), np.float32)
    needs_policy = options.loss == "rl"
    logprobs = row.need_logprobs() if needs_policy or row.logprobs is not None else nothing
    advantages = row.need_advantages() if needs_policy else nothing
    weights = row.whole(row.shares).tolist()
    none = [0.0] * len(weights)
    return {
        "token_ids": row.ids.tolist(),
        "mask": row.whole(row.response_mask).tolist(),
        "logprobs": row.whole(logprobs).tolist(),
        "temperatures": [row.temperature] * len(weights),
        "advantages": row.whole(advantages).tolist(),
        "rl_weights": weights if needs_policy else none,
        "ce_weights": none if needs_policy else weights,
        "env_name": task_set_of(row.member.trajectory),
    }


ADAPTER = RowAdapter("prime_rl", "prime-rl's TrainingSample", needs_of(PrimeRlOptions), PrimeRlOptions, lay)
