"""A Hugging Face Dataset of rows of ids, to be saved, filtered or mapped."""

from __future__ import annotations

from typing import Any

from agentworld.trainers.adapters.adapter import Form, RowAdapter, installed, needs_of
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples
from agentworld.trainers.adapters.tasks import reference_of, task_set_of


class DatasetsOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `datasets`. `form`: a Dataset, or its columns as a dictionary of lists."""

    form: Form = "package"


def lay(samples: Samples, options: DatasetsOptions) -> Any:
    """One a row: `prompt_ids`, `response_ids`, `response_mask` (0 and 1), `logprobs`, `advantages`, `shares`,
    `versions`, annotations (lists; null where there are none), `temperature`, `reward`, `group`, `rollout`, `part`,
    `trajectory_tokens`, `trajectory_id`, `step_ids`, `task_set`, `reference`.
    """
    rows = [_row(row) for row in samples.rows]
    names = list(rows[0]) if rows else []
    columns = {name: [row[name] for row in rows] for name in names}
    module = installed("datasets", options.form, "datasets")
    return columns if module is None else module.Dataset.from_dict(columns)


def _row(row: Sample) -> dict[str, Any]:
    def listed(values: Any) -> list[Any] | None:
        return None if values is None else values.tolist()

    return {
        "prompt_ids": row.prompt_ids.tolist(),
        "response_ids": row.response_ids.tolist(),
        "response_mask": row.response_mask.astype("int64").tolist(),
        "logprobs": listed(row.logprobs),
        "advantages": listed(row.advantages),
        "shares": row.shares.tolist(),
        "versions": listed(row.versions),
        **{name: values.tolist() for name, values in row.annotations.items()},
        "temperature": row.temperature,
        "reward": row.reward,
        "group": row.group,
        "rollout": row.rollout,
        "part": row.part,
        "trajectory_tokens": row.denominator,
        "trajectory_id": row.trajectory_id,
        "step_ids": row.step_ids,
        "task_set": task_set_of(row.member.trajectory),
        "reference": reference_of(row.member.trajectory),
    }


ADAPTER = RowAdapter("datasets", "A Hugging Face Dataset", needs_of(DatasetsOptions), DatasetsOptions, lay)
