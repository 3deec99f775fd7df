"""OpenRLHF's Experience: whole sequences, and per action, which is each id but the first, what belongs to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentworld.trainers.adapters.adapter import RowAdapter, needs_of
from agentworld.trainers.adapters.padding import Array, padded, tensors
from agentworld.trainers.adapters.samples import SampleOptions, Samples
from agentworld.trainers.adapters.tasks import reference_of

# What OpenRLHF calls the annotations that pools have.
COLUMNS = {"values": "values", "reference_logprobs": "base_action_log_probs"}


class OpenRlhfOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `openrlhf`. `old_log_probs`: also put the recorded log-probabilities in the place of those that
    the actor would compute anew. `temperature`: the trainer's, where rows have to be of it.
    `Experience(**fields)` takes what comes.
    """

    pad_id: int = 0
    old_log_probs: bool = False
    temperature: float | None = None


def lay(samples: Samples, options: OpenRlhfOptions) -> dict[str, Any]:
    """B rows of T ids, right-padded, with A = T - 1 actions. `sequences`, `attention_mask` int64 [B, T]; `action_mask`
    bool [B, A]; `rollout_log_probs`, `action_log_probs`, `advantages`, `returns`, `values` float32 [B, A]; `rewards`,
    `scores`, `response_length`, `total_length`, `truncated` float32 [B]; `prompts`: the groups, and `labels`: the
    references, lists [B]; `info`: `reward`.

    `returns` are the advantages, and with `values` their sum, as in generalised advantage estimation.
    """
    samples.no_parts_of_weights()
    samples.one_temperature(options.temperature)
    rows = samples.rows
    columns: dict[str, Array] = {
        "sequences": padded([row.ids for row in rows], options.pad_id, np.int64),
        "attention_mask": padded([np.ones(len(row.ids)) for row in rows], 0, np.int64),
        "action_mask": padded([row.whole(row.response_mask)[1:] for row in rows], False, np.bool_),
    }

    def actions(values: list[Array]) -> Array:
        return padded([row.whole(each)[1:] for row, each in zip(rows, values, strict=True)], 0, np.float32)

    if options.logprobs != "none":
        columns["rollout_log_probs"] = actions([row.need_logprobs() for row in rows])
    if options.old_log_probs:
        columns["action_log_probs"] = actions([row.need_logprobs() for row in rows])
    for name in options.annotations:
        columns[COLUMNS.get(name, name)] = actions([row.annotations[name] for row in rows])
    if rows and rows[0].advantages is not None:
        columns["advantages"] = actions([row.need_advantages() for row in rows])
        columns["returns"] = columns["advantages"] + columns.get("values", np.float32(0))
    columns["rewards"] = np.asarray([row.need_reward() for row in rows], np.float32)
    columns["scores"] = columns["rewards"]
    columns["response_length"] = np.asarray([int(row.response_mask.sum()) for row in rows], np.float32)
    columns["total_length"] = np.asarray([len(row.ids) for row in rows], np.float32)
    columns["truncated"] = np.asarray([row.truncated for row in rows], np.float32)
    return {
        **tensors(columns),
        "prompts": [row.group for row in rows],
        "labels": [reference_of(row.member.trajectory) for row in rows],
        "info": tensors({"reward": columns["rewards"]}),
    }


ADAPTER = RowAdapter("openrlhf", "OpenRLHF's Experience", needs_of(OpenRlhfOptions, *COLUMNS), OpenRlhfOptions, lay)
