"""Supervised fine-tuning on messages, which the trainer renders with the model's chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.columns import Kind, NotPlain
from agentworld.curation.exports.conversations import Conversation, conversations, has_messages, is_cut_off
from agentworld.curation.exports.imitation import imitated
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Row, Work, layout, origin_of
from agentworld.curation.exports.rendering import Renderer, check_prompt
from agentworld.errors import ConfigError
from agentworld.records import Step

STYLES = ("messages", "prompt-completion", "verl")


def style_of(options: ExportOptions) -> str:
    """What was asked for; one row a step makes prompts with their completions."""
    if options.style is None:
        return "prompt-completion" if options.expand == "each-step" else "messages"
    if options.expand == "each-step" and options.style != "prompt-completion":
        raise ConfigError(
            f"style {options.style} cannot be expanded: each row would train on the replies of earlier rows again",
            path="expand",
            hint="Use style prompt-completion",
        )
    return options.style


def columns(options: ExportOptions) -> Mapping[str, Kind]:
    """Messages as JSON objects, or as plain structs for a loader that reads Parquet without `datasets`."""
    style = style_of(options)
    images: dict[str, Kind] = {"images": "images"} if options.images else {}
    if style == "verl":
        if options.images:
            raise ConfigError("style verl takes no images here", path="images", hint="Use style messages")
        if options.arguments == "json":
            raise ConfigError("style verl has arguments as text", path="arguments", hint="Leave arguments out")
        return {"messages": "plain_messages", "tools": "plain_tools", "enable_thinking": "flag"}
    if style == "messages":
        return {"messages": "objects", "tools": "objects", **images}
    return {"prompt": "objects", "completion": "objects", "tools": "objects", **images}


@layout(
    "sft",
    says="Conversations for supervised fine-tuning: TRL's SFTTrainer, verl's SFT dataset.",
    columns=columns,
    takes=("style", "expand", "thinking", "arguments", "images", "truncated"),
    styles=STYLES,
)
class Sft:
    """One row a branch, or one a step."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._style = style_of(work.options)
        arguments = "text" if self._style == "verl" else work.options.arguments or "json"
        self._renderer = Renderer(
            thinking=work.options.thinking,
            arguments=arguments,
            media=work.source.media if work.options.images else None,
        )

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        self._renderer.forget()
        steps = imitated(frozen, self._work.left_out)
        self._work.left_out["without_messages"] += sum(not has_messages(step) for step in steps)
        for each in branches(steps, self._work.options):
            if self._style != "prompt-completion" and each.other_replies:
                self._work.left_out["other_replies"] += 1
                continue
            if self._work.options.truncated == "drop" and any(map(is_cut_off, each.steps)):
                self._work.left_out["truncated"] += 1
                continue
            try:
                yield self._row(each)
            except NotPlain as reason:
                self._work.left_out[str(reason)] += 1

    def rest(self) -> Iterator[Row]:
        """Nothing."""
        return iter(())

    def _row(self, each: Conversation) -> Row:
        images: list[dict[str, object]] | None = [] if self._work.options.images else None
        said = self._renderer.messages(each.messages, images)
        row: Row = {"tools": each.tools, PROVENANCE: origin_of(each.steps)}
        if self._style == "prompt-completion":
            check_prompt(each.prompt)
            row |= {"prompt": said[: each.replies[0]], "completion": said[each.replies[0] :]}
        else:
            row["messages"] = said
        if self._style == "verl":
            row["enable_thinking"] = any("reasoning_content" in said[place] for place in each.replies)
        if images is not None:
            row["images"] = images
        return row


def branches(steps: Sequence[Step], options: ExportOptions) -> Iterator[Conversation]:
    """The branches, or of each step its prompt as it was seen with its reply."""
    if options.expand != "each-step":
        yield from conversations(steps)
        return
    for step in steps:
        yield from conversations([step])
