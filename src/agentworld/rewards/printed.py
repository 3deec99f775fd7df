"""A reward that a program prints: its last line is the number."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class PrintedReward:
    """What a program said."""

    value: float
    name: str = "reward"
    details: dict[str, Any] = field(default_factory=dict)


def read_printed(output: str) -> PrintedReward:
    """The reward in the last line: a number, or a JSON object with `reward` and perhaps `name`, the rest details.

    ValueError says why the line is none.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        raise ValueError("it printed nothing; its last line must be a number")
    last = lines[-1]
    try:
        data: Any = msgspec.json.decode(last) if last.startswith("{") else {"reward": float(last)}
        value, name = data.pop("reward"), data.pop("name", "reward")
    except (msgspec.DecodeError, ValueError, KeyError):
        raise ValueError(
            f'{last[:80]!r} is no reward; the last line must be a number, or JSON like {{"reward": 1.0}}'
        ) from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"the reward is {value!r}, which is no finite number")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the reward's name is {name!r}, which is no text")
    return PrintedReward(float(value), name, data)
