"""AgentWorld: the data factory for training LLM agents.

    import agentworld as aw

    pool = aw.open_pool("sqlite:///pool.db")
    factory = aw.connect("http://127.0.0.1:8400")

Names are loaded when they are used, so that importing the package is quick and loads neither torch nor a web framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentworld.client.aio import AsyncFactory, AsyncTrajectory
    from agentworld.client.factory import Factory
    from agentworld.client.session import TrajectorySession
    from agentworld.errors import AgentWorldError
    from agentworld.factory import EmbeddedPool, connect, open_pool
    from agentworld.pool.keys import NewKey
    from agentworld.pool.protocol import Pool
    from agentworld.records import (
        Annotation,
        Batch,
        BatchSpec,
        Exchange,
        Feedback,
        Message,
        NewTrajectory,
        Policy,
        Reward,
        Step,
        Trajectory,
    )

_MODULES = {
    "agentworld.factory": ("EmbeddedPool", "connect", "open_pool"),
    "agentworld.client.factory": ("Factory",),
    "agentworld.client.aio": ("AsyncFactory", "AsyncTrajectory"),
    "agentworld.client.session": ("TrajectorySession",),
    "agentworld.errors": ("AgentWorldError",),
    "agentworld.pool.keys": ("NewKey",),
    "agentworld.pool.protocol": ("Pool",),
    "agentworld.records": (
        "Annotation",
        "Batch",
        "BatchSpec",
        "Exchange",
        "Feedback",
        "Message",
        "NewTrajectory",
        "Policy",
        "Reward",
        "Step",
        "Trajectory",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AgentWorldError",
    "Annotation",
    "AsyncFactory",
    "AsyncTrajectory",
    "Batch",
    "BatchSpec",
    "EmbeddedPool",
    "Exchange",
    "Factory",
    "Feedback",
    "Message",
    "NewKey",
    "NewTrajectory",
    "Policy",
    "Pool",
    "Reward",
    "Step",
    "Trajectory",
    "TrajectorySession",
    "connect",
    "open_pool",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("agentworld")
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'agentworld' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
