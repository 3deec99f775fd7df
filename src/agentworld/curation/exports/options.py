"""What an export may be asked for. Each layout says which of these it takes; others are refused, not ignored."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal, get_args

import msgspec

from agentworld.errors import ConfigError

Thinking = Literal["keep", "drop", "last"]
Arguments = Literal["json", "text"]
Expand = Literal["last", "each-step"]
Truncated = Literal["drop", "keep"]
FileFormat = Literal["parquet", "jsonl", "json"]
COMPONENTS = ("reasoning", "tool_calls", "answer")
PAIR_SOURCES = ("comparisons", "corrections", "rewards")


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of layouts; null and the defaults mean that nothing was asked.

    `style`: a variant of the layout's columns. `expand`: one row a branch of a trajectory, or one a step. `thinking`:
    what of the reasoning goes into messages. `arguments`: of tool calls, as JSON values or as the text that was sent.
    `train`: components of replies that are trained on. `tokenizer`: that of the model, a name or a path. `images`:
    whether rows with images are written. `reward`: which value is read, see `signals.Value`. `threshold`: from which
    value on it is good. `margin`: how far rewards within a group must be apart to make a pair. `sources`: of pairs.
    `most`: pairs of one group. `whole`: pairs of whole conversations. `truncated`: conversations with replies that the
    limit of tokens cut off.
    """

    style: str | None = None
    expand: Expand | None = None
    thinking: Thinking = "keep"
    arguments: Arguments | None = None
    train: tuple[str, ...] = ()
    tokenizer: str | None = None
    images: bool = False
    reward: str = "reward"
    threshold: float = 0.5
    margin: float | None = None
    sources: tuple[str, ...] = ()
    truncated: Truncated = "drop"
    most: int = 4
    whole: bool = False


def check_options(layout: str, options: ExportOptions, takes: Collection[str], styles: Collection[str]) -> None:
    """ConfigError for an option that the layout does not take, or a value that is none."""
    default = ExportOptions()
    for name in ExportOptions.__struct_fields__:
        if getattr(options, name) != getattr(default, name) and name not in takes:
            known = ", ".join(sorted(takes)) or "none"
            raise ConfigError(
                f"the layout {layout} has no option {name}",
                path=name,
                hint=f"{_INSTEAD.get(name, '')}It takes: {known}",
            )
    if options.style is not None and options.style not in styles:
        raise ConfigError(
            f"the layout {layout} has no style {options.style!r}", path="style", hint=f"Use {', '.join(styles)}"
        )
    for value, choices, name in (
        (options.thinking, get_args(Thinking), "thinking"),
        (options.truncated, get_args(Truncated), "truncated"),
        (options.expand or "last", get_args(Expand), "expand"),
        (options.arguments or "json", get_args(Arguments), "arguments"),
    ):
        if value not in choices:
            raise ConfigError(f"{name} cannot be {value!r}", path=name, hint=f"Use {', '.join(choices)}")
    for values, several, name in ((options.train, COMPONENTS, "train"), (options.sources, PAIR_SOURCES, "sources")):
        for one in values:
            if one not in several:
                raise ConfigError(f"{name} cannot be {one!r}", path=name, hint=f"Use {', '.join(several)}")
    if not math.isfinite(options.threshold):
        raise ConfigError("threshold must be a finite number", path="threshold")
    if options.margin is not None and not 0 < options.margin < math.inf:
        raise ConfigError("margin must be a finite number over 0", path="margin")
    if options.most < 1:
        raise ConfigError("most must be at least 1", path="most")


_INSTEAD = {
    "train": "Trainers that render messages mask whole messages at most; sft-tokens masks exactly. ",
    "thinking": "Tokens stay as they were sampled; leave reasoning out of the loss with train. ",
}
