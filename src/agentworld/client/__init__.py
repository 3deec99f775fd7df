"""The HTTP client library: the pool's surface over the control API, for threads and for event loops."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentworld.client.aio import AsyncFactory, AsyncTrajectory
    from agentworld.client.factory import Factory
    from agentworld.client.session import TrajectorySession
    from agentworld.client.wire import ChatReply, StartedTrajectory

__all__ = ["AsyncFactory", "AsyncTrajectory", "ChatReply", "Factory", "StartedTrajectory", "TrajectorySession"]

# Loaded on first use: only the client for event loops needs aiohttp.
_HOME = {
    "AsyncFactory": "aio",
    "AsyncTrajectory": "aio",
    "ChatReply": "wire",
    "Factory": "factory",
    "StartedTrajectory": "wire",
    "TrajectorySession": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'agentworld.client' has no attribute {name!r}")
    return getattr(importlib.import_module(f"agentworld.client.{_HOME[name]}"), name)
