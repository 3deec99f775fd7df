"""Unpadded rows for TransferQueue, the data plane of verl's V1 trainer, NeMo-RL, ROLL and Relax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agentworld.errors import ConfigError
from agentworld.trainers.adapters.adapter import RowAdapter, needs_of
from agentworld.trainers.adapters.padding import Array, Arrays, tensors
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples
from agentworld.trainers.adapters.tasks import origin_of, reference_of, task_set_of, version_range


class TransferQueueOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `transfer_queue`. `partition`: where rows are put. `global_steps`: the trainer's step that the
    rows are for. `temperature`: the trainer's, where rows have to be of it.
    """

    partition: str = "train"
    global_steps: int = 0
    temperature: float | None = None
    arrays: Arrays = "torch"


@dataclass(frozen=True, slots=True)
class QueueRows:
    """B rows. `keys`: `{group}_{rollout}_{part}`. `fields`: of each row by name 1-dimensional tensors, numbers and
    dictionaries. `tags`: of each row what samplers choose by. `groups`: the groups, whose status is put last.
    """

    keys: list[str]
    fields: list[dict[str, Any]]
    tags: list[dict[str, Any]]
    groups: list[str]
    partition: str

    def put(self, queue: Any) -> Any:
        """Put the rows, then that their groups are finished. `queue`: the module transfer_queue, after its `init()`;
        returns what it says of the rows.
        """
        if not self.keys:
            return None
        found = queue.kv_batch_put(
            keys=self.keys, partition_id=self.partition, fields=self.tensor_dict(), tags=self.tags
        )
        for group in self.groups:
            queue.kv_put(key=group, partition_id=self.partition, tag={"status": "finished"})
        return found

    def tensor_dict(self) -> Any:
        """The fields as one TensorDict [B]: equal shapes stacked, others as jagged nested tensors, the rest as
        non-tensor stacks.
        """
        try:
            import torch
            from tensordict import NonTensorStack, TensorDict
        except ImportError as error:
            raise ConfigError(f"TransferQueue takes a TensorDict: {error}", hint="pip install TransferQueue") from None
        columns: dict[str, Any] = {}
        for name in self.fields[0]:
            values = [row[name] for row in self.fields]
            if not isinstance(values[0], torch.Tensor):
                columns[name] = NonTensorStack(*values)
            elif all(value.shape == values[0].shape for value in values):
                columns[name] = torch.stack(values)
            else:
                columns[name] = torch.nested.as_nested_tensor(values, layout=torch.jagged)
        return TensorDict(columns, batch_size=[len(self.keys)])


def lay(samples: Samples, options: TransferQueueOptions) -> QueueRows:
    """`prompts` int64 [P], `responses`, `response_mask`, `loss_mask` int64 [R], `input_ids`, `position_ids` int64
    [P + R]; `rollout_log_probs`, `rm_scores`, `advantages` float32 [R], the score at the last token; `num_turns`,
    `reward_score`, `uid`, `data_source`, `reward_model`, `extra_fields`.
    """
    samples.no_parts_of_weights()
    samples.one_temperature(options.temperature)
    rows = samples.rows
    return QueueRows(
        keys=[f"{row.group}_{row.rollout}_{row.part}" for row in rows],
        fields=[_fields(row, options) for row in rows],
        tags=[_tags(row, options) for row in rows],
        groups=list(dict.fromkeys(row.group for row in rows)),
        partition=options.partition,
    )


def _fields(row: Sample, options: TransferQueueOptions) -> dict[str, Any]:
    mask = row.response_mask.astype(np.int64)
    scores = np.zeros(len(mask), np.float32)
    scores[-1] = row.need_reward()
    columns: dict[str, Array] = {
        "prompts": row.prompt_ids,
        "responses": row.response_ids,
        "response_mask": mask,
        "loss_mask": mask,
        "input_ids": row.ids,
        "position_ids": np.arange(len(row.ids), dtype=np.int64),
        "rm_scores": scores,
    }
    if options.logprobs != "none":
        columns["rollout_log_probs"] = row.need_logprobs()
    if row.advantages is not None:
        columns["advantages"] = row.advantages
    columns |= row.annotations
    low, high = version_range(row)
    trajectory = row.member.trajectory
    return {
        **tensors(columns, options.arrays),
        "num_turns": 2 * len(row.turns),
        "reward_score": row.need_reward(),
        "uid": row.group,
        "data_source": task_set_of(trajectory),
        "reward_model": {"style": "rule", "ground_truth": reference_of(trajectory)},
        "extra_fields": {**origin_of(row), "min_global_steps": low, "max_global_steps": high},
    }


def _tags(row: Sample, options: TransferQueueOptions) -> dict[str, Any]:
    low, high = version_range(row)
    prompt, response = len(row.prompt_ids), len(row.response_ids)
    return {
        "status": "success",
        "prompt_len": prompt,
        "response_len": response,
        "seq_len": prompt + response,
        "global_steps": options.global_steps,
        "min_global_steps": low,
        "max_global_steps": high,
    }


ADAPTER = RowAdapter(
    "transfer_queue", "Rows for TransferQueue", needs_of(TransferQueueOptions), TransferQueueOptions, lay
)
