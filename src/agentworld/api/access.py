"""What the caller of a request may reach of the pool, and how its agents reach the gateway."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

from litestar import Request
from litestar.datastructures import State

from agentworld.api.bound_pool import BoundPool
from agentworld.config import ServeSettings
from agentworld.gateway.access import NOTHING, Grant, check_granted, check_scopes
from agentworld.gateway.keys import session_key, signed_page_key, signed_session_key
from agentworld.pool.protocol import Pool

CALLER: ContextVar[Grant] = ContextVar("agentworld_caller", default=NOTHING)
"""What the caller of the request that is being answered may do; set before the application is entered."""


def reach(state: State) -> Pool:
    """The pool as the caller of this request may use it."""
    grant, pool = CALLER.get(), state.pool
    check_granted(grant)
    if not grant.bound:
        found: Pool = pool
        return found
    return BoundPool(pool, grant)  # type: ignore[abstract]  # It has those methods alone that a bound key may use.


def check_own(trajectory_id: str) -> None:
    """ForbiddenError where the caller may not read, and is not bound to this trajectory."""
    grant = CALLER.get()
    if grant.trajectory_id != trajectory_id:
        check_scopes(grant, ("read",), "reading the calls of another trajectory than its own")


def key_holds(state: State) -> Callable[[], bool] | None:
    """What tells, of a reply that goes on and on, whether its caller's key still holds; None without a key."""
    key_id, pool = CALLER.get().key_id, state.pool
    if key_id is None:
        return None

    def look() -> bool:
        stored = pool.get_key(key_id)
        return stored is not None and stored.key.lives(time.time())

    return look


def agent_base_url(request: Request[Any, Any, Any], settings: ServeSettings, trajectory_id: str) -> str | None:
    """`ORIGIN/t/TRAJECTORY/v1`, as OpenAI clients take a base URL; None where no gateway is known."""
    if not settings.models and not settings.gateway_url:
        return None
    return f"{_origin(request, settings)}/t/{quote(trajectory_id, safe='')}/v1"


def agent_key(trajectory_id: str, settings: ServeSettings) -> str:
    """The session key of the trajectory: signed with the caller's own key, where it has one that may write."""
    grant = CALLER.get()
    if grant.key_id is None or grant.secret is None:
        return session_key(trajectory_id)
    until = int(time.time() + settings.session_key_seconds)
    return signed_session_key(trajectory_id, grant.key_id, grant.secret, until)


def page_key(trajectory_id: str, settings: ServeSettings) -> str | None:
    """The key for a page that shows the trajectory; None where the caller has no key of its own to sign it with."""
    grant = CALLER.get()
    if grant.key_id is None or grant.secret is None:
        return None
    until = int(time.time() + settings.session_key_seconds)
    return signed_page_key(trajectory_id, grant.key_id, grant.secret, until)


def _origin(request: Request[Any, Any, Any], settings: ServeSettings) -> str:
    if settings.gateway_url:
        return settings.gateway_url.rstrip("/")
    # A malformed Host header has been refused before this.
    return f"{request.url.scheme}://{request.url.netloc}"
