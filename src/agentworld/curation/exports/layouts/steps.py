"""Raw steps: every field of each, with what is said of their trajectory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.columns import Kind
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Row, Work, layout, origin_of
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


@layout("steps", says="Raw steps, every field of each.", columns=columns, reads=("messages", "tokens", "logprobs"))
class Steps:
    """One row a step."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        about = {f"trajectory_{name}": _value(frozen.trajectory, name) for name in TRAJECTORY}
        for step in frozen.steps:
            own = {name: _value(step, name) for name in STEP}
            yield {**own, **about, "weight": frozen.row.weight, PROVENANCE: origin_of([step])}

    def rest(self) -> Iterator[Row]:
        """Nothing."""
        return iter(())


def _value(record: Step | Trajectory, name: str) -> Any:
    return getattr(record, name)
