"""How a run of evaluators goes about its work."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import digest

Again = Literal["failed", "all"]
_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is over, and its bounds.

    `where` chooses among trajectories that have ended; without it those that are finished or truncated. `shard`:
    (i, n), the i-th of n parts, from 0; a group and its members are in one part. `again`: `failed` evaluates once more
    what has failed, `all` everything, whatever is known. `concurrency`: evaluations of each evaluator at once.
    `retries`: further tries after a failure that may pass. `pause_after`: failures in a row after which an evaluator
    rests, first for `first_rest` seconds. `most_seconds`: after so long an evaluation that has no end of its own has
    failed. `limit`: at most so many trajectories and groups. `dry_run`: nothing is evaluated and nothing written.
    """

    name: str = "rewards"
    channel: str | None = None
    where: str | None = None
    shard: tuple[int, int] | None = None
    again: Again | None = None
    follow: bool = False
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    pause_after: Annotated[int, msgspec.Meta(ge=1)] = 50
    first_rest: float = 5.0
    longest_rest: float = 300.0
    most_seconds: float = 1800.0
    limit: int | None = None
    dry_run: bool = False


def read_shard(text: str | None) -> tuple[int, int] | None:
    """`i/n` as numbers; ConfigError where it is none, or i is not from 0 to n - 1."""
    if text is None:
        return None
    found = _SHARD.fullmatch(text)
    if found is None or not int(found[1]) < int(found[2]):
        raise ConfigError(f"{text!r} is no part", path="shard", hint="Write I/N with I from 0 to N - 1, such as 0/4")
    return int(found[1]), int(found[2])


def in_shard(key: str, shard: tuple[int, int] | None) -> bool:
    """Whether what has this key belongs to the part."""
    return (
        shard is None or int.from_bytes(digest(key.encode("utf-8", "surrogatepass"))[:8], "big") % shard[1] == shard[0]
    )
