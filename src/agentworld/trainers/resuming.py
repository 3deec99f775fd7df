"""What may change between a checkpoint and the job that goes on from it, and what may not.

How fast and in what pieces a job learns may change, and is told. What it learns may not: the second half of a run would
be another experiment under the name of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentworld.errors import ConfigError

FREE = frozenset(
    {"learning_rate", "head_learning_rate", "weight_decay", "beta1", "beta2", "gradient_norm", "schedule", "warmup"}
    | {"epochs", "rows_per_update", "micro_tokens", "micro_pairs", "merging", "verify_merging", "threads"}
)
"""Settings that another value may be given to on the way."""
_HINT = "Give the old value, or begin a job of its own: another `out`, with the checkpoint as `weights`"


def as_stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as a checkpoint's JSON gives them back: tuples are lists there."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values))
    return found


def check_same(checkpoint: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """ConfigError where something has another value than when the checkpoint was written.

    Names that one side lacks are left out: a checkpoint of an earlier version says less.
    """
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            raise ConfigError(
                f"{name} is {_told(now[name])}, and was {_told(before[name])} when {checkpoint} was written",
                path=name,
                hint=_HINT,
            )


def changes(checkpoint: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The settings that changed and may, each as `name: old -> new`; ConfigError for one that may not."""
    check_same(checkpoint, _without(before, FREE), _without(now, FREE))
    differ = sorted(name for name in before.keys() & now.keys() & FREE if before[name] != now[name])
    return [f"{name}: {_told(before[name])} -> {_told(now[name])}" for name in differ]


def _without(settings: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


def _told(value: Any) -> str:
    return "unset" if value is None else str(value)
