"""What an export wrote, and what it left out and why."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

REASONS = {
    "arguments_without_json": "the arguments of a tool call are no JSON object; export with arguments as text",
    "arguments_key_twice": "the arguments of a tool call have a key twice; export with arguments as text",
    "comparison_of_no_step": "the preferred step is not in the version, or the other one is not in the pool",
    "comparison_of_no_trajectory": "the other trajectory of a comparison is not in the pool any more",
    "comparison_of_other_split": "the other side of a comparison is in another split of the version",
    "comparison_outside_version": "the other side of a comparison is not in the version",
    "correction_of_no_step": "a correction is of a step that is not in the version or has no messages",
    "correction_outdated": "a correction was given on another reply than the one that is there",
    "correction_unchanged": "a correction says what was said",
    "deleted": "the trajectory was deleted on request since the version was frozen",
    "group_without_contrast": "no two members of a group are as far apart as the margin",
    "media": "messages with media; export with images where the layout takes them",
    "media_not_there": "bytes of an image are not in the pool any more",
    "media_without_images": "media other than images",
    "missing": "the trajectory is not in the pool any more",
    "missing_steps": "a step of the trajectory is not in the pool any more",
    "no_common_prompt": "the two of a pair answer no prompt in common, or never differently",
    "not_preferred": "a reply that another one was preferred to, which is not to be imitated",
    "nothing_to_train": "no token of the sequence is to be trained on",
    "other_replies": "conversations with replies that are not of the version, which would be trained on too; "
    "export as prompt-completion",
    "prefilled": "the prompt ends with the beginning of the reply, after which trainers would begin another one",
    "prompt_again": "a row with the same prompt and reference is there already",
    "same_reply": "the two replies of a comparison say the same",
    "text_without_utf8": "a text has half a surrogate pair, which loaders leave out without a word",
    "tools_of_another_shape": "tools whose shape cannot stand beside that of the others in plain columns; "
    "export with another style",
    "weight_zero": "a reply whose label training_weight is 0",
    "truncated": "a reply was cut off by the limit of tokens, and would be trained on as if it ended there; "
    "export with truncated as keep",
    "without_first_step": "the trajectory's first step is not in the version",
    "without_ids": "steps without token ids",
    "without_messages": "steps without messages",
    "without_prompt": "the reply has nothing before it, and trainers take no empty prompts",
    "without_value": "nothing says how good it is under the name that was asked for",
}
"""Why things are left out: each reason with what it means."""


class ExportedSplit(msgspec.Struct, frozen=True, kw_only=True):
    """`files`: their paths within the folder. `left_out`: how much by reason."""

    rows: int
    files: list[str]
    left_out: dict[str, int]


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """An export that is done. `splits`: by the names that the files have."""

    folder: str
    version: str
    layout: str
    file_format: str
    rows: int
    size: int
    columns: list[str]
    splits: dict[str, ExportedSplit]

    @property
    def left_out(self) -> dict[str, int]:
        """Of all splits together."""
        total: dict[str, int] = {}
        for split in self.splits.values():
            for reason, count in split.left_out.items():
                total[reason] = total.get(reason, 0) + count
        return total


def reasons(left_out: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Reason, how often, and what it means; the most frequent first."""
    return [
        (reason, count, REASONS.get(reason, ""))
        for reason, count in sorted(left_out.items(), key=lambda one: (-one[1], one[0]))
        if count
    ]
