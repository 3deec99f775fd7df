"""What the methods that keep a pool take and return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.pool.bounds import MAX_INTEGER, check_integer, is_finite

# Called with the name of the work, how much of it is done, and how much there is (None where nobody knows yet).
Progress = Callable[[str, int, int | None], None]


def no_progress(stage: str, done: int, total: int | None) -> None:
    """For callers that do not want to know."""


class Retention(msgspec.Struct, kw_only=True, frozen=True):
    """What may go. A trajectory goes where any of the limits says so; what no limit names stays.

    `max_age`: seconds since it ended. `max_policy_lag`: versions that its policy lies behind the one that speaks now,
    within one run; where another run speaks there is no lag. `max_steps` and `max_bytes`: of the whole pool; the
    trajectories that were created first go first. `channels`: only trajectories of these; None means all.
    """

    max_age: float | None = None
    max_policy_lag: int | None = None
    max_steps: int | None = None
    max_bytes: int | None = None
    channels: tuple[str, ...] | None = None

    def checked(self) -> Retention:
        """The same, where its numbers make sense; InvalidRequestError otherwise."""
        if self.max_age is not None and (
            isinstance(self.max_age, bool) or not is_finite(self.max_age) or self.max_age < 0
        ):
            raise InvalidRequestError("max_age is a number of seconds from 0", path="max_age")
        for name in ("max_policy_lag", "max_steps", "max_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise InvalidRequestError(f"{name} is a whole number, not {value!r}", path=name)
            check_integer(value, name, highest=MAX_INTEGER)
        channels: Any = self.channels
        if channels is None:
            return self
        if isinstance(channels, str) or not all(isinstance(channel, str) for channel in channels):
            raise InvalidRequestError("channels is a list of names", path="channels", hint="Write ('train',) for one")
        if not channels:
            raise InvalidRequestError("channels is empty", path="channels", hint="Leave it out for all channels")
        return self

    @property
    def limits_anything(self) -> bool:
        """Whether a trajectory can go at all."""
        limits = (self.max_age, self.max_policy_lag, self.max_steps, self.max_bytes)
        return any(limit is not None for limit in limits)


class Collection(msgspec.Struct, kw_only=True):
    """What a collection took, or with `dry_run` would take, in rows; `media_bytes`: of its media. `datasets`: versions
    that were begun and never frozen.

    `kept_pinned`, `kept_leased`, `kept_waiting`: trajectories that a limit named and that stay, since a pin, a running
    lease or a consumer that has not had them holds them. Of garbage a dry run counts what nothing points at now, and
    not what only that holds.
    """

    trajectories: int = 0
    steps: int = 0
    token_blocks: int = 0
    message_nodes: int = 0
    tool_sets: int = 0
    media: int = 0
    media_bytes: int = 0
    datasets: int = 0
    kept_pinned: int = 0
    kept_leased: int = 0
    kept_waiting: int = 0
    dry_run: bool = False


class Deletion(msgspec.Struct, kw_only=True):
    """What a deletion on request removed, in rows. `unknown`: ids of which the pool holds nothing."""

    trajectories: int = 0
    steps: int = 0
    token_blocks: int = 0
    message_nodes: int = 0
    tool_sets: int = 0
    media: int = 0
    unknown: list[str] = []


class Pin(msgspec.Struct, frozen=True):
    """What holds a trajectory against retention: `owner_kind` such as `dataset`, and whose."""

    owner_kind: str
    owner: str
    trajectory_id: str
    created_at: float


class Tombstone(msgspec.Struct, frozen=True):
    """What was deleted on request: `kind` is trajectory, step or user."""

    sequence: int
    kind: str
    target_id: str
    reason: str | None
    at: float


class Problem(msgspec.Struct, frozen=True):
    """One fault that a check found.

    `kind`: hash, count, reference, sequence, media or engine. `table` and `key` say where (a primary key, an id or the
    name of a counter), `message` what is wrong, `hint` what to do.
    """

    kind: str
    table: str
    key: str
    message: str
    hint: str
