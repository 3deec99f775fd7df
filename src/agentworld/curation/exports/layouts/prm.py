"""Step by step supervision: of each reply of a branch whether it was good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.columns import Kind, NotPlain
from agentworld.curation.exports.conversations import Conversation, conversations, has_messages, is_cut_off
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Row, Work, layout, origin_of
from agentworld.curation.exports.rendering import Renderer, check_prompt, plain_text
from agentworld.curation.exports.signals import Value

STYLES = ("text", "messages")


def columns(options: ExportOptions) -> Mapping[str, Kind]:
    """`rewards` are what `labels` were made from."""
    if options.style == "messages":
        own: dict[str, Kind] = {"prompt": "objects", "completions": "turns"}
    else:
        own = {"prompt": "text", "completions": "texts"}
    return {**own, "labels": "flags", "rewards": "reals"}


@layout(
    "prm",
    says="Replies of a branch one by one with whether each was good: process reward models.",
    columns=columns,
    takes=("style", "thinking", "arguments", "reward", "threshold", "truncated"),
    styles=STYLES,
)
class Prm:
    """One row a branch all of whose replies have a value of their own.

    A completion begins with what was said since the reply before: results of tools, words of the user.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._value = Value(work.options.reward)
        self._renderer = Renderer(thinking=work.options.thinking, arguments=work.options.arguments or "json")

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        self._renderer.forget()
        self._work.left_out["without_messages"] += sum(not has_messages(step) for step in frozen.steps)
        for each in conversations(frozen.steps):
            values = [self._value.of_step(frozen, step) for step in each.steps]
            known = [value for value in values if value is not None]
            if len(known) < len(values):
                self._work.without_value(frozen)
                continue
            if self._work.options.truncated == "drop" and any(map(is_cut_off, each.steps)):
                self._work.left_out["truncated"] += 1
                continue
            try:
                yield self._row(each, known)
            except NotPlain as reason:
                self._work.left_out[str(reason)] += 1

    def rest(self) -> Iterator[Row]:
        """Nothing."""
        return iter(())

    def _row(self, each: Conversation, values: list[float]) -> Row:
        check_prompt(each.prompt)
        ends = [place + 1 for place in each.replies]
        starts = [each.replies[0], *ends[:-1]]
        turns = list(zip(starts, ends, strict=True))
        row: Row = {
            "labels": [value >= self._work.options.threshold for value in values],
            "rewards": values,
            PROVENANCE: origin_of(each.steps),
        }
        if self._work.options.style == "messages":
            said = self._renderer.messages(each.messages)
            return {**row, "prompt": said[: starts[0]], "completions": [said[start:end] for start, end in turns]}
        if any(message.media for message in each.messages):
            raise NotPlain("media")
        pieces = [each.messages[start:end] for start, end in turns]
        texts = [plain_text(piece, self._renderer, last=piece is pieces[-1]) for piece in pieces]
        return {**row, "prompt": plain_text(each.prompt, self._renderer, last=False), "completions": texts}
