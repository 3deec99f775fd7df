"""Replies that are good or bad by themselves, without another to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.columns import Kind, NotPlain
from agentworld.curation.exports.conversations import conversations, has_messages, is_cut_off
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Row, Work, layout, origin_of
from agentworld.curation.exports.rendering import Renderer, check_prompt
from agentworld.curation.exports.signals import Value
from agentworld.records import Step


def columns(options: ExportOptions) -> Mapping[str, Kind]:
    """`value` is what `label` was made from."""
    images: dict[str, Kind] = {"images": "images"} if options.images else {}
    return {
        "prompt": "objects",
        "completion": "objects",
        "label": "flag",
        "tools": "objects",
        "value": "real",
        **images,
    }


@layout(
    "kto",
    says="Replies with whether they are good: TRL's KTOTrainer.",
    columns=columns,
    takes=("expand", "thinking", "arguments", "images", "reward", "threshold", "truncated"),
)
class Kto:
    """One row a reply, or one for the last reply of each branch; a step without a value takes its trajectory's."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._value = Value(work.options.reward)
        self._renderer = Renderer(
            thinking=work.options.thinking,
            arguments=work.options.arguments or "json",
            media=work.source.media if work.options.images else None,
        )

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        self._renderer.forget()
        left_out = self._work.left_out
        left_out["without_messages"] += sum(not has_messages(step) for step in frozen.steps)
        wanted = [step for step in frozen.steps if has_messages(step)]
        if self._work.options.expand == "last":
            wanted = [each.steps[-1] for each in conversations(frozen.steps)]
        without = 0
        for step in wanted:
            value = self._value.of_either(frozen, step)
            if value is None:
                without += 1
                continue
            if self._work.options.truncated == "drop" and is_cut_off(step):
                left_out["truncated"] += 1
                continue
            try:
                yield self._row(step, value)
            except NotPlain as reason:
                left_out[str(reason)] += 1
        if without:
            self._work.without_value(frozen, without)

    def rest(self) -> Iterator[Row]:
        """Nothing."""
        return iter(())

    def _row(self, step: Step, value: float) -> Row:
        images: list[dict[str, Any]] | None = [] if self._work.options.images else None
        assert step.response_message is not None
        check_prompt(step.prompt_messages)
        row: Row = {
            "prompt": self._renderer.messages(step.prompt_messages or [], images, last=-1),
            "completion": self._renderer.messages([step.response_message]),
            "label": value >= self._work.options.threshold,
            "tools": step.tools or [],
            "value": value,
            PROVENANCE: origin_of([step]),
        }
        if images is not None:
            row["images"] = images
        return row
