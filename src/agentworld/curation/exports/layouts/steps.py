"""Raw steps: every field of each, with what is said of their trajectory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.datasets.reading import ARRAYS
from agentworld.curation.exports.columns import Kind
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Row, Work, layout, origin_of
from agentworld.pool.arrays import StepArrays
from agentworld.records import Step, Trajectory

STEP: dict[str, Kind] = {
    **dict.fromkeys(("step_id", "trajectory_id", "exchange_id", "group_id", "channel", "parent_step_id"), "text"),
    **dict.fromkeys(("supersedes", "fork_reason", "agent", "model", "requested_model", "dialect"), "text"),
    **dict.fromkeys(("token_source", "vocabulary", "logprob_space", "finish_reason"), "text"),
    **dict.fromkeys(("choice_index", "step_index", "prompt_length", "response_length"), "whole"),
    **dict.fromkeys(("prompt_ids", "response_ids"), "ids"),
    "response_mask": "bits",
    "response_logprobs": "logprobs",
    **dict.fromkeys(("prompt_messages", "tools", "version_spans"), "objects"),
    **dict.fromkeys(("response_message", "policy", "sampling", "usage", "rewards", "labels", "metadata"), "json"),
    **dict.fromkeys(("reward", "created_at", "latency_ms"), "real"),
    "is_last": "flag",
}  # fmt: skip
TRAJECTORY: dict[str, Kind] = {
    **dict.fromkeys(("task", "metadata", "rewards", "labels"), "json"),
    "reward": "real",
    "status": "text",
}


def columns(options: ExportOptions) -> Mapping[str, Kind]:
    """The fields of a step by their names, those of its trajectory behind `trajectory_`, and its weight."""
    return {**STEP, **{f"trajectory_{name}": kind for name, kind in TRAJECTORY.items()}, "weight": "real"}


AS_IT_IS = (
    "exchange_id", "channel", "choice_index", "step_index", "supersedes", "requested_model", "dialect", "usage",
    "metadata", "created_at", "latency_ms", "is_last", "trajectory_metadata", "trajectory_status",
)  # fmt: skip
"""What no digest of a version is over."""


@layout(
    "steps",
    says="Raw steps, every field of each.",
    columns=columns,
    reads=("messages", ARRAYS),
    as_it_is=AS_IT_IS,
)
class Steps:
    """One row a step."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        about = {f"trajectory_{name}": _value(frozen.trajectory, name) for name in TRAJECTORY}
        for step in frozen.steps:
            own = {name: _value(step, name) for name in STEP}
            yield {
                **own,
                **_arrays(step, frozen.arrays.get(step.step_id)),
                **about,
                "weight": frozen.row.weight,
                PROVENANCE: origin_of([step]),
            }

    def rest(self) -> Iterator[Row]:
        """Nothing."""
        return iter(())


def _arrays(step: Step, arrays: StepArrays | None) -> Row:
    """Ids, mask and log-probabilities: null where the step has none, [] where they are empty."""
    ids = np.zeros(0, np.uint32) if arrays is None else arrays.ids
    reply = None if step.response_length is None else ids[step.prompt_length or 0 :]
    mask = arrays.mask if arrays is not None else None
    if mask is None and reply is not None:
        mask = np.ones(len(reply), np.uint8)
    logprobs = None if arrays is None or arrays.logprobs is None else arrays.logprobs.tolist()
    return {
        "prompt_ids": None if step.prompt_length is None else ids[: step.prompt_length],
        "response_ids": reply,
        "response_mask": mask,
        "response_logprobs": logprobs and [None if value != value else value for value in logprobs],
    }


def _value(record: Step | Trajectory, name: str) -> Any:
    return getattr(record, name)
