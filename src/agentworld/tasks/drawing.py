"""Drawing tasks from packages: what the ready sets of packages share. A task's content decides its split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import digest
from agentworld.tasks.base import Split, Task

HELD_OUT_ONE_IN = 10
# Generators draw item i of seed s from s + i, so that seeds which lie close would share items.
SEED_STRIDE = 1_000_000_007
_SEEDS = 2**31 - 1  # what every generator takes


def split_of(name: str, content: Any) -> tuple[Split, str]:
    """The split of a problem by its content (one in ten is held out, whatever the seeds), and its key for ids."""
    key = digest(name.encode(), msgspec.json.encode(content))
    return ("heldout" if int.from_bytes(key[:4], "big") % HELD_OUT_ONE_IN == 0 else "train"), key.hex()[:16]


def check_split(split: str) -> Split:
    """The split of that name."""
    if split not in ("train", "heldout"):
        raise ConfigError(f"there is no split {split!r}", path="split", hint="Use train or heldout")
    return "train" if split == "train" else "heldout"


def seed_at(seed: int, index: int) -> int:
    """The seed of item `index` of a draw."""
    return (seed * SEED_STRIDE + index) % _SEEDS


def draw(name: str, made: Iterator[Task], count: int, split: Split) -> list[Task]:
    """The first `count` different tasks of a split; ConfigError where there are not so many."""
    found: dict[str, Task] = {}
    for task in made:
        if task.split == split:
            found.setdefault(task.task_id, task)
        if len(found) == count:
            return list(found.values())
    raise ConfigError(f"task set {name} has only {len(found)} tasks of split {split}, not {count}", path="count")


def chosen(name: str, tasks: list[Task], count: int | None, split: Split, seed: int) -> list[Task]:
    """Of a set that is listed whole, in its order, or shuffled by a `seed` other than 0: the first `count`."""
    own = [task for task in tasks if task.split == split]
    if seed:
        Random(seed).shuffle(own)
    if count is not None and count > len(own):
        raise ConfigError(f"task set {name} has only {len(own)} tasks of split {split}, not {count}", path="count")
    return own[:count]


def plain(value: Any) -> Any:
    """A value of a package as JSON has it; what JSON has not becomes its text."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_plain))


def _plain(value: Any) -> Any:
    item = getattr(value, "item", None)  # numbers of numpy
    return item() if callable(item) else str(value)


def refuse_unknown(name: str, options: Mapping[str, Any], known: Mapping[str, type]) -> None:
    """ConfigError where an option is none of the set's, or of another type."""
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"task set {name} has no option {option!r}",
                path=f"$.options.{option}",
                hint=f"There are: {', '.join(known) or 'none'}",
            )
        if type(value) is not known[option]:
            raise ConfigError(
                f"option {option} of {name} is {value!r}, no {known[option].__name__}", path=f"$.options.{option}"
            )
