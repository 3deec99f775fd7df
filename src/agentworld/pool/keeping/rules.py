"""What callers may ask of keeping."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.errors import InvalidRequestError
from agentworld.pool.bounds import storable
from agentworld.records import check_id

MAX_REASON = 1_000  # characters
MAX_AT_ONCE = 10_000  # trajectories of one call


def check_owner(owner_kind: str, owner: str) -> None:
    """Both name what holds a pin, so both are ids."""
    check_id(owner_kind, "owner_kind")
    check_id(owner, "owner")


def check_deletion(trajectory_ids: Sequence[str], reason: str | None) -> None:
    """InvalidRequestError where an id or the reason cannot be kept in a tombstone."""
    if len(trajectory_ids) > MAX_AT_ONCE:
        raise InvalidRequestError(
            f"at most {MAX_AT_ONCE} trajectories at once, not {len(trajectory_ids)}", path="trajectory_ids"
        )
    for number, trajectory_id in enumerate(trajectory_ids):
        check_id(trajectory_id, f"trajectory_ids[{number}]")
    if reason is not None:
        with storable("reason."):
            reason.encode()
        if len(reason) > MAX_REASON or "\x00" in reason:
            raise InvalidRequestError(
                f"reason has at most {MAX_REASON} characters, and no U+0000", path="reason", hint="Say it shorter"
            )


def check_user(user: str) -> None:
    """InvalidRequestError where it can be no user of a trajectory."""
    with storable("user."):
        user.encode()
    if not user or "\x00" in user:
        raise InvalidRequestError("user is empty, or holds U+0000", path="user")
