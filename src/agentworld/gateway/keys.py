"""Session keys: an API key that names the trajectory it was made for, for clients that can set nothing else.

On a loopback address such a key only routes; it is no secret and grants nothing that the address does not.
"""

from __future__ import annotations

from agentworld.errors import InvalidRequestError
from agentworld.records import check_id

PREFIX = "aw-t-"


def session_key(trajectory_id: str) -> str:
    """The key that routes its calls to this trajectory."""
    return PREFIX + check_id(trajectory_id, "trajectory_id")


def trajectory_of(key: str) -> str | None:
    """The trajectory that a key was made for, or None for any other key."""
    if not key.startswith(PREFIX):
        return None
    try:
        return check_id(key[len(PREFIX) :], "authorization")
    except InvalidRequestError:
        return None
