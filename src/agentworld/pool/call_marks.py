"""Marks of calls that name no trajectory: how another process finds the trajectory that such a call belongs to.

A mark is the digest of what a later call can repeat under the same API key: the body, by which it is a retry, or the
conversation up to a reply, by which it is the continuation. Marks of open trajectories are kept, and of calls that are
still on their way; they go when the trajectory ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from agentworld.records import MarkKind

ASKED_SECONDS = 3600.0
"""A call that did not end after so long is not waited for."""


class CallMark(msgspec.Struct, frozen=True):
    """A mark and its trajectory, which need not be there while its first call is on its way. A reply is `taken` once a
    call has been given its trajectory to go on with, in the place of others where the conversation is the same.

    `said`: see Mark. `at`: when, seconds since the epoch; `age`: how long before it was read, both by the pool's clock.
    `latest`: of replies, whether the trajectory has none later.
    """

    trajectory_id: str
    said: MarkKind | Literal["asked", "taken"]
    at: float
    latest: bool = False
    age: float = 0.0


class CallMarkMethods(Protocol):
    """See Pool."""

    def mark_call(self, trajectory_id: str, mark: str) -> None:
        """A call with this mark is on its way in the trajectory; nothing where it is marked already."""

    def find_marks(self, marks: Sequence[str]) -> list[CallMark]:
        """Where the first of these marks that is known stands, in the order in which it was set."""

    def take_reply(self, marks: Sequence[str]) -> str | None:
        """The open trajectory in which the first of these marks that is known stands as that of a reply.

        Rollouts of one task can be equal for a while, so a mark can stand in several: each continuation is given the
        one that waits longest and that nobody has gone on with; where there is none, the last.
        """


def next_waiting(rows: Sequence[CallMark]) -> CallMark | None:
    """Of the trajectories in which a reply stands the one to go on with next; None where none waits."""
    return next((row for row in rows if row.latest and row.said == "reply"), None)
