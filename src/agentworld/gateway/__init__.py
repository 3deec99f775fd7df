"""The LLM routes: agents call them as they would call their model's API."""

from agentworld.gateway.app import Gateway, create_gateway
from agentworld.gateway.keys import session_key, trajectory_of

__all__ = ["Gateway", "create_gateway", "session_key", "trajectory_of"]
