"""Prompts with references for reinforcement learning: one row a task and prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.columns import Kind, NotPlain, json_text
from agentworld.curation.exports.conversations import has_messages
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Row, Work, layout, origin_of
from agentworld.curation.exports.rendering import Renderer, check_prompt
from agentworld.forest.messages import chain, match_key, tools_digest
from agentworld.records import Step, digest


def columns(options: ExportOptions) -> Mapping[str, Kind]:
    """`prompt` is for both trainers, `tools` for whoever renders it, the rest is verl's."""
    return {
        "prompt": "objects",
        "tools": "objects",
        "data_source": "text",
        "ability": "text",
        "reward_model": "reward_model",
        "extra_info": "extra_info",
    }


@layout(
    "rl-prompts",
    says="Prompts of tasks with their references: TRL's GRPOTrainer, verl's RLHFDataset.",
    columns=columns,
    takes=("arguments", "thinking"),
)
class RlPrompts:
    """The prompt of a trajectory's first step, where it is none that a row has already."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._renderer = Renderer(thinking=work.options.thinking, arguments=work.options.arguments or "json")
        work.scratch.make("prompts (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._index = 0

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        first = next((step for step in frozen.steps if has_messages(step)), None)
        if first is None:
            self._work.left_out["without_messages"] += 1
            return
        if first.parent_step_id is not None:
            self._work.left_out["without_first_step"] += 1
            return
        task = frozen.trajectory.task or {}
        key = digest(json_text([frozen.row.task_key, _reference(task)]).encode(), _prompt_key(first))
        if self._work.scratch.one("SELECT 1 FROM prompts WHERE key = ?", (key,)) is not None:
            self._work.left_out["prompt_again"] += 1
            return
        try:
            check_prompt(first.prompt_messages)
            self._renderer.forget()
            said = self._renderer.messages(first.prompt_messages or [], last=-1)
        except NotPlain as reason:
            self._work.left_out[str(reason)] += 1
            return
        self._work.scratch.all("INSERT INTO prompts VALUES (?)", (key,))
        yield self._row(frozen, first, said, task)
        self._index += 1

    def rest(self) -> Iterator[Row]:
        """Nothing."""
        return iter(())

    def _row(self, frozen: FrozenTrajectory, first: Step, said: list[dict[str, Any]], task: dict[str, Any]) -> Row:
        reference = _reference(task)
        text = reference if isinstance(reference, str) else "" if reference is None else json_text(reference)
        return {
            "prompt": said,
            "tools": first.tools or [],
            "data_source": str(task.get("task_set") or self._work.source.version.name),
            "ability": str(task.get("ability") or task.get("task_set") or frozen.trajectory.channel),
            "reward_model": {"style": "rule", "ground_truth": text},
            "extra_info": {
                "split": frozen.row.split,
                "index": self._index,
                "task_id": None if task.get("task_id") is None else str(task["task_id"]),
                "trajectory_id": frozen.row.trajectory_id,
            },
            PROVENANCE: origin_of([first]),
        }


def _reference(task: Mapping[str, Any]) -> Any:
    return next((task[name] for name in ("reference", "answer", "ground_truth") if task.get(name) is not None), None)


def _prompt_key(step: Step) -> bytes:
    root = tools_digest(step.tools)
    return (chain(root, step.prompt_messages or [], match_key) or [root])[-1]
