"""The LLM routes: agents call them as they would call their model's API.

`create_gateway` is imported on first use, so that whoever only makes session keys loads no server.
"""

from typing import TYPE_CHECKING, Any

from agentworld.gateway.keys import session_key, trajectory_of

if TYPE_CHECKING:
    from agentworld.gateway.app import Gateway, create_gateway

__all__ = ["Gateway", "create_gateway", "session_key", "trajectory_of"]


def __getattr__(name: str) -> Any:
    if name in ("Gateway", "create_gateway"):
        from agentworld.gateway import app

        return getattr(app, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
