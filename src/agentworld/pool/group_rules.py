"""When a group closes, what becomes of its failures, and who comes too late; the same in every store.

A group that has a size or a time-out is offered to nobody while it is open, so that it is delivered whole; one that has
neither never closes, and is offered as soon as enough of it is ready. It closes once that many rollouts have ended, or
when its time is over: a time-out is noticed by the next write that touches the group and by the next lease. Attempts
with the same `rollout_index` are one rollout, which has ended once one of them finished or was truncated, or once all
have failed; a trajectory without an index is a rollout of its own.

At the close the failures that stand for their rollout (the last attempt of one that never succeeded) are, as the group
says, served with the primary reward 0 (zero), served for the statistics alone (mask), or left out (drop). What is
created or completed after the close is excluded as `late_for_group`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from agentworld.errors import ConflictError, InvalidRequestError
from agentworld.pool.rules import undecided
from agentworld.records import Group, GroupFailures, NewTrajectory, Readiness, TrajectoryStatus

LATE = "late_for_group"
RETRIED = "retried"
SOURCE = "group"  # of the reward that the zero and mask policies set
_TOLERANCE = 0.001  # seconds by which two time-outs are still the same


class Member(NamedTuple):
    """What a group counts of one trajectory; `key` names it in its store."""

    key: int | str
    group_id: str | None
    rollout_index: int | None
    attempt: int
    status: TrajectoryStatus
    readiness: Readiness
    excluded_reason: str | None


def serves(readiness: Readiness) -> bool:
    """Whether consumers may get a trajectory (of a closed group: exactly those of its members)."""
    return readiness in ("complete", "ready")


def check_state(state: object) -> None:
    """InvalidRequestError where no group can be in that state; None stands for all."""
    if state not in (None, "open", "closed"):
        raise InvalidRequestError(f"no group is {state!r}", path="state", hint="Known: open, closed")


def is_bounded(size: int | None, timeout_at: float | None) -> bool:
    """Whether a group will close."""
    return size is not None or timeout_at is not None


def is_offered(group: Group) -> bool:
    """Whether the group as such may be leased now."""
    return group.state == "closed" or not is_bounded(group.size, group.timeout_at)


def close_reason(group: Group, now: float) -> Literal["size", "timeout"] | None:
    """Why an open group is to be closed now, or None."""
    if group.state == "closed":
        return None
    if group.size is not None and group.ended >= group.size:
        return "size"
    if group.timeout_at is not None and group.timeout_at <= now:
        return "timeout"
    return None


def is_admitted(failures: GroupFailures | None, closed: bool, status: TrajectoryStatus) -> bool:
    """Whether its group serves a trajectory although it failed."""
    return closed and failures in ("zero", "mask") and status in ("failed", "abandoned")


def rollout_ended(statuses: Sequence[TrajectoryStatus]) -> bool:
    """Whether the rollout with these attempts has ended."""
    if any(status in ("finished", "truncated") for status in statuses):
        return True
    return bool(statuses) and "open" not in statuses


def failures_at_close(members: Iterable[Member]) -> tuple[list[Member], list[Member]]:
    """Of a group that closes: the failures that stand for their rollout, and those that were tried again."""
    rollouts: dict[tuple[object, ...], list[Member]] = {}
    for member in members:
        alone = member.rollout_index is None
        rollouts.setdefault((alone, member.key if alone else member.rollout_index), []).append(member)
    standing: list[Member] = []
    retried: list[Member] = []
    for attempts in rollouts.values():
        failed = [m for m in attempts if m.status in ("failed", "abandoned") and not undecided(m.excluded_reason)]
        failed.sort(key=lambda member: member.attempt)
        if not any(m.status in ("finished", "truncated") for m in attempts) and failed:
            standing.append(failed.pop())
        retried += failed
    return standing, retried


def new_group(group_id: str, new: NewTrajectory, now: float) -> Group:
    """The group that its first trajectory makes."""
    return Group(
        group_id=group_id,
        channel=new.channel,
        size=new.group_size,
        timeout_at=None if new.group_timeout is None else now + new.group_timeout,
        failures=new.group_failures,
        created_at=now,
    )


def adopted(group: Group, new: NewTrajectory) -> Group:
    """The group with what `new` says of it first; ConflictError where something else was said before."""
    if new.group_size is not None and group.size not in (None, new.group_size):
        raise _other(group, "group_size", group.size, new.group_size)
    if new.group_failures is not None and group.failures not in (None, new.group_failures):
        raise _other(group, "group_failures", group.failures, new.group_failures)
    timeout_at = None if new.group_timeout is None else group.created_at + new.group_timeout
    if timeout_at is not None and group.timeout_at is not None and abs(timeout_at - group.timeout_at) > _TOLERANCE:
        raise _other(group, "group_timeout", round(group.timeout_at - group.created_at, 3), new.group_timeout)
    if group.state == "closed":
        return group  # What is over is not planned anew.
    return msgspec.structs.replace(
        group,
        size=group.size or new.group_size,
        failures=group.failures or new.group_failures,
        timeout_at=group.timeout_at if timeout_at is None or group.timeout_at is not None else timeout_at,
    )


def _other(group: Group, path: str, known: object, sent: object) -> ConflictError:
    return ConflictError(
        f"group {group.group_id!r} has {path} {known}, not {sent}",
        path=path,
        hint="Send what its first trajectory said, leave it out, or use another group_id",
    )
