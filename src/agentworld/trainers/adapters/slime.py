"""slime's Sample: ids with a mask over the response, the versions of its turns, and one denominator a trajectory."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentworld.trainers.adapters.adapter import RowAdapter, needs_of
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples
from agentworld.trainers.adapters.tasks import origin_of, prompt_of, reference_of


class SlimeOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `slime`. `temperature`: the trainer's, where rows have to be of it. Rows
    are what `Sample.from_dict` takes.
    """

    temperature: float | None = None


def lay(samples: Samples, options: SlimeOptions) -> list[dict[str, Any]]:
    """One a row. `tokens`: all ids; `response_length` R; `loss_mask`, `rollout_log_probs` [R]; `reward`;
    `weight_versions`: of each turn as text; `status`: completed, truncated or failed; `group_index` counts groups,
    `rollout_id` trajectories, `index` rows; `metadata` with `rollout_mask_sum`, the trajectory's marked tokens, which
    its rows share, and `advantages` [R] where there is credit.
    """
    samples.no_parts_of_weights()
    samples.one_temperature(options.temperature)
    groups = {name: place for place, name in enumerate(dict.fromkeys(row.group for row in samples.rows))}
    runs = {name: place for place, name in enumerate(dict.fromkeys(row.trajectory_id for row in samples.rows))}
    return [
        {
            **_sample(row, options),
            "group_index": groups[row.group],
            "rollout_id": runs[row.trajectory_id],
            "index": place,
        }
        for place, row in enumerate(samples.rows)
    ]


def _sample(row: Sample, options: SlimeOptions) -> dict[str, Any]:
    metadata = {**origin_of(row), "rollout_mask_sum": row.denominator}
    if row.advantages is not None:
        metadata["advantages"] = row.advantages.tolist()
    return {
        "prompt": prompt_of(row) or "",
        "tokens": row.ids.tolist(),
        "response_length": len(row.response_ids),
        "label": reference_of(row.member.trajectory),
        "reward": row.need_reward(),
        "loss_mask": row.response_mask.astype(np.int64).tolist(),
        "weight_versions": _turn_versions(row),
        "rollout_log_probs": None if options.logprobs == "none" else row.need_logprobs().tolist(),
        "status": _status(row),
        "metadata": metadata,
    }


def _turn_versions(row: Sample) -> list[str]:
    """The newest version of each turn's sampled tokens; none where steps name no policy."""
    if row.versions is None:
        return []
    turns = [row.versions[start:end] for start, end in row.turns]
    return [str(int(turn.max())) for turn in turns if len(turn) and turn.max() >= 0]


def _status(row: Sample) -> str:
    if row.truncated:
        return "truncated"
    return "failed" if row.member.trajectory.status in ("failed", "abandoned") else "completed"


ADAPTER = RowAdapter("slime", "slime's Sample", needs_of(SlimeOptions), SlimeOptions, lay)
