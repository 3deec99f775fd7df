"""Calls whose trajectory turned out to be another's when their reply was stored.

Where a trajectory is not there yet, the gateways cannot know at admission what it will be: a call of another server,
or of another key, can make it meanwhile. So the append looks again, in its transaction.
"""

from __future__ import annotations

from agentworld.errors import ConflictError
from agentworld.pool.results import AppendResult
from agentworld.records import Exchange

_MADE = "another call made the trajectory meanwhile"


def conflict_of(exchange: Exchange, group_id: str | None, channel: str) -> ConflictError | None:
    """Why the exchange's steps may not go into its trajectory, which is there in this group and channel."""
    wanted = exchange.only_group
    if wanted is not None and group_id is not None and group_id != wanted:
        what, path = f"it is in group {group_id!r}, not {wanted!r}", "group"
    elif exchange.only_channel is not None and channel != exchange.only_channel:
        what, path = f"it is in channel {channel!r}, and the call may only be in {exchange.only_channel!r}", "channel"
    else:
        return None
    return ConflictError(
        f"{_MADE}: {what}", path=path, hint="The reply is among the dead letters; use another trajectory"
    )


def told(result: AppendResult) -> ConflictError | None:
    """The conflict that kept a step from being stored; None where it is another reason, or it was stored."""
    reason = result.reason or ""
    return ConflictError(reason) if result.outcome == "rejected" and reason.startswith(_MADE) else None
