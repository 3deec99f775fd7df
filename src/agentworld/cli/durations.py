"""Durations as they are typed: a number and a unit."""

from __future__ import annotations

import re

from agentworld.cli.usage import CommandLineError

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def seconds(text: str, option: str) -> float:
    """A duration such as 30d in seconds; CommandLineError names the option where it is none."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise CommandLineError(
            f"{text[:40]!r} is no duration", path=option, hint="Write a number and s, m, h, d or w, such as 30d"
        )
    return float(found[1]) * _SECONDS[found[2]]
