"""verl's DataProto: prompts padded on the left, responses on the right."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentworld.trainers.adapters.adapter import Form, RowAdapter, installed, needs_of
from agentworld.trainers.adapters.padding import Array, padded, positions, tensors
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples
from agentworld.trainers.adapters.tasks import origin_of, prompt_of, reference_of, task_set_of, version_range

# What verl calls the annotations that pools have.
COLUMNS = {"reference_logprobs": "ref_log_prob", "teacher_logprobs": "teacher_logprobs", "values": "values"}


class VerlOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `verl`. `prompt_length`, `response_length`: of all rows, else those of the longest; a longer row
    is refused, none is cut. `temperature`: the actor's, where rows have to be of it. `old_log_probs`: also put the
    recorded log-probabilities in the place of those that the actor would compute anew. `scores`: put the reward at each
    row's last token. `form`: DataProto, or the same as a dictionary of torch tensors and numpy arrays.
    """

    pad_id: int = 0
    prompt_length: int | None = None
    response_length: int | None = None
    temperature: float | None = None
    old_log_probs: bool = False
    scores: bool = True
    form: Form = "auto"


def lay(samples: Samples, options: VerlOptions) -> Any:
    """B rows. batch: `prompts` [B, P], `responses`, `response_mask` [B, R], `input_ids`, `attention_mask`,
    `position_ids` [B, P + R], int64; `rollout_log_probs`, `rm_scores`, `advantages`, `old_log_probs` float32 [B, R],
    and annotations by verl's names. non_tensor_batch: `uid`, `data_source`, `reward_model`, `extra_info`, `agent_name`,
    `__num_turns__`, `min_global_steps`, `max_global_steps`, with messages `raw_prompt`, object [B]. meta_info:
    `temperature`, `global_token_num`, `agentworld`.

    Every row of a trajectory has its reward: make advantages here where trajectories have several rows, as verl's own
    group statistics count rows.
    """
    samples.no_parts_of_weights()
    heat = samples.one_temperature(options.temperature)
    rows = samples.rows
    prompts = padded(
        [row.prompt_ids for row in rows],
        options.pad_id,
        np.int64,
        length=options.prompt_length,
        left=True,
        option="prompt_length",
    )
    responses = _right(rows, "response_ids", options, options.pad_id, np.int64)
    before = padded([np.ones(len(row.prompt_ids)) for row in rows], 0, np.int64, length=prompts.shape[1], left=True)
    after = padded([np.ones(len(row.response_ids)) for row in rows], 0, np.int64, length=responses.shape[1])
    attention = np.concatenate([before, after], axis=1)
    columns: dict[str, Array] = {
        "prompts": prompts,
        "responses": responses,
        "response_mask": _right(rows, "response_mask", options, 0, np.int64),
        "input_ids": np.concatenate([prompts, responses], axis=1),
        "attention_mask": attention,
        "position_ids": positions(attention),
    }
    if options.logprobs != "none":
        columns["rollout_log_probs"] = _right(rows, "logprobs", options, 0, np.float32)
    if options.old_log_probs:
        columns["old_log_probs"] = padded([row.need_logprobs() for row in rows], 0, np.float32, length=after.shape[1])
    if rows and rows[0].advantages is not None:
        columns["advantages"] = _right(rows, "advantages", options, 0, np.float32)
    if options.scores:
        columns["rm_scores"] = np.zeros(responses.shape, np.float32)
        for place, row in enumerate(rows):
            columns["rm_scores"][place, len(row.response_ids) - 1] = row.need_reward()
    for name in options.annotations:
        values = [row.annotations[name] for row in rows]
        columns[COLUMNS.get(name, name)] = padded(values, 0, np.float32, length=after.shape[1])
    made = tensors(columns)
    others = non_tensors(rows)
    batch = samples.batch
    about = {
        "temperature": heat,
        "global_token_num": attention.sum(axis=1).tolist(),
        "agentworld": {"batch_id": batch.batch_id, "epoch": batch.epoch},
    }
    protocol = installed("verl.protocol", options.form, "verl")
    if protocol is None:
        return {"batch": made, "non_tensor_batch": others, "meta_info": about}
    return protocol.DataProto.from_dict(tensors=made, non_tensors=others, meta_info=about)


def non_tensors(rows: list[Sample]) -> dict[str, Array]:
    """What verl keeps beside its tensors: object arrays [B], `__num_turns__` int32 [B]."""
    versions = [version_range(row) for row in rows]
    columns: dict[str, list[Any]] = {
        "uid": [row.group for row in rows],
        "data_source": [task_set_of(row.member.trajectory) for row in rows],
        "reward_model": [{"style": "rule", "ground_truth": reference_of(row.member.trajectory)} for row in rows],
        "extra_info": [{**origin_of(row), "index": place} for place, row in enumerate(rows)],
        "agent_name": [row.member.trajectory.agent for row in rows],
        "min_global_steps": [low for low, _ in versions],
        "max_global_steps": [high for _, high in versions],
    }
    prompts = [prompt_of(row) for row in rows]
    if prompts and all(prompt is not None for prompt in prompts):
        columns["raw_prompt"] = prompts
    found = {name: _objects(values) for name, values in columns.items()}
    # A question and an answer each.
    return {**found, "__num_turns__": np.asarray([2 * len(row.turns) for row in rows], np.int32)}


def _objects(values: list[Any]) -> Array:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _right(rows: list[Sample], name: str, options: VerlOptions, fill: float, dtype: Any) -> Array:
    values = [getattr(row, name) for row in rows]
    return padded(values, fill, dtype, length=options.response_length, option="response_length")


ADAPTER = RowAdapter("verl", "verl's DataProto", needs_of(VerlOptions, *COLUMNS), VerlOptions, lay)
