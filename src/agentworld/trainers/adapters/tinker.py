"""Tinker's Datum: inputs are the ids but the last, targets the ids but the first."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from agentworld.trainers.adapters.adapter import Form, RowAdapter, installed, needs_of
from agentworld.trainers.adapters.padding import Array
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples
from agentworld.trainers.adapters.spaces import Logprobs


class TinkerOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `tinker`. `loss`: `policy` for importance_sampling and ppo, `cross_entropy` for sft. `mask`: also
    the mask, which some losses of your own read. `form`: Datum, or the same as dictionaries. Its losses are of raw
    log-probabilities, so those of another temperature are refused.
    """

    loss: Literal["policy", "cross_entropy"] = "policy"
    mask: bool = False
    logprobs: Logprobs = "raw"
    form: Form = "auto"


def lay(samples: Samples, options: TinkerOptions) -> list[Any]:
    """A Datum of L - 1 positions a row. `model_input`: ids [:-1]. `loss_fn_inputs`: `target_tokens` int64 [L - 1], ids
    [1:]; for policy `logprobs` and `advantages` float32 [L - 1], for cross_entropy `weights`; `mask` float32 [L - 1].
    What a token weighs less than 1 is in advantages and weights.
    """
    tinker = installed("tinker", options.form, "tinker")
    return [_datum(tinker, row.ids, _inputs(row, options)) for row in samples.rows]


def _inputs(row: Sample, options: TinkerOptions) -> dict[str, Array]:
    def shifted(values: Array) -> Array:
        return np.ascontiguousarray(row.whole(values)[1:])

    found: dict[str, Array] = {"target_tokens": np.ascontiguousarray(row.ids[1:])}
    if options.loss == "cross_entropy":
        found["weights"] = shifted(row.shares)
    else:
        found["logprobs"] = shifted(row.need_logprobs())
        found["advantages"] = shifted(row.need_advantages() * row.shares)
    if options.mask:
        found["mask"] = shifted(row.response_mask.astype(np.float32))
    return found


def _datum(tinker: Any, ids: Array, inputs: dict[str, Array]) -> Any:
    if tinker is None:
        return {"model_input": ids[:-1].tolist(), "loss_fn_inputs": inputs}
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(ids[:-1].tolist()), loss_fn_inputs=inputs)


ADAPTER = RowAdapter("tinker", "Tinker's Datum", needs_of(TinkerOptions), TinkerOptions, lay)
