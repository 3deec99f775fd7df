"""SkyRL's GeneratorOutput: lists of rows, step by step or as whole trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentworld.trainers.adapters.adapter import RowAdapter, needs_of
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples


class SkyRlOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `skyrl`. `temperature`: the trainer's, where rows have to be of it."""

    temperature: float | None = None


def lay(samples: Samples, options: SkyRlOptions) -> dict[str, Any]:
    """Lists [B]: `prompt_token_ids`, `response_ids`, `loss_masks` and `rollout_logprobs` [R] each, `rewards`,
    `stop_reasons`, `trajectory_ids` (the fields of TrajectoryID: `instance_id`, the group, and `repetition_id`, the
    rollout), `is_last_step`; `rollout_metrics`: None.

    Only a trajectory's last row has its reward, the others 0, as SkyRL takes the outcome from the last step. Rows of a
    trajectory follow one another.
    """
    samples.no_parts_of_weights()
    samples.one_temperature(options.temperature)
    rows = samples.rows
    return {
        "prompt_token_ids": [row.prompt_ids.tolist() for row in rows],
        "response_ids": [row.response_ids.tolist() for row in rows],
        "rewards": [row.need_reward() if _is_last(row) else 0.0 for row in rows],
        "loss_masks": [row.response_mask.astype(np.int64).tolist() for row in rows],
        "stop_reasons": ["length" if row.truncated else row.steps[-1].finish_reason or "stop" for row in rows],
        "rollout_logprobs": None if options.logprobs == "none" else [row.need_logprobs().tolist() for row in rows],
        "trajectory_ids": [{"instance_id": row.group, "repetition_id": row.rollout} for row in rows],
        "is_last_step": [_is_last(row) for row in rows],
        "rollout_metrics": None,
    }


def _is_last(row: Sample) -> bool:
    return row.part == row.parts - 1


ADAPTER = RowAdapter("skyrl", "SkyRL's GeneratorOutput", needs_of(SkyRlOptions), SkyRlOptions, lay)
