"""How an agent reaches the gateway: the base URL and the key of its trajectory."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from litestar import Request

from agentworld.config import ServeSettings
from agentworld.gateway.keys import session_key


def agent_base_url(request: Request[Any, Any, Any], settings: ServeSettings, trajectory_id: str) -> str | None:
    """`ORIGIN/t/TRAJECTORY/v1`, as OpenAI clients take a base URL; None where no gateway is known."""
    if not settings.models and not settings.gateway_url:
        return None
    return f"{_origin(request, settings)}/t/{quote(trajectory_id, safe='')}/v1"


def agent_key(trajectory_id: str) -> str:
    """The session key that names the trajectory, for clients that cannot change their base URL's path."""
    return session_key(trajectory_id)


def _origin(request: Request[Any, Any, Any], settings: ServeSettings) -> str:
    if settings.gateway_url:
        return settings.gateway_url.rstrip("/")
    # A malformed Host header has been refused before this.
    return f"{request.url.scheme}://{request.url.netloc}"
