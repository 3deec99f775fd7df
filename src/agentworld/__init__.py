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
    from agentworld.curation.datasets.comparing import diff_datasets
    from agentworld.curation.datasets.frozen import FrozenTrajectory
    from agentworld.curation.datasets.reading import read_dataset
    from agentworld.curation.datasets.selecting import create_dataset
    from agentworld.curation.datasets.tracing import trace_row
    from agentworld.curation.datasets.verifying import verify_dataset
    from agentworld.curation.exports.export import export_dataset
    from agentworld.errors import AgentWorldError
    from agentworld.factory import EmbeddedPool, connect, open_pool
    from agentworld.ingest.loader import import_paths
    from agentworld.pool.keys import NewKey
    from agentworld.pool.protocol import Pool
    from agentworld.records import (
        Annotation,
        Batch,
        BatchSpec,
        DatasetRow,
        DatasetVersion,
        Exchange,
        Feedback,
        Message,
        NewTrajectory,
        Policy,
        Reward,
        Selection,
        Splits,
        Step,
        Trajectory,
        WholeTrajectory,
    )

_MODULES = {
    "agentworld.factory": ("EmbeddedPool", "connect", "open_pool"),
    "agentworld.client.factory": ("Factory",),
    "agentworld.client.aio": ("AsyncFactory", "AsyncTrajectory"),
    "agentworld.client.session": ("TrajectorySession",),
    "agentworld.curation.datasets.comparing": ("diff_datasets",),
    "agentworld.curation.datasets.frozen": ("FrozenTrajectory",),
    "agentworld.curation.datasets.reading": ("read_dataset",),
    "agentworld.curation.datasets.selecting": ("create_dataset",),
    "agentworld.curation.datasets.tracing": ("trace_row",),
    "agentworld.curation.datasets.verifying": ("verify_dataset",),
    "agentworld.curation.exports.export": ("export_dataset",),
    "agentworld.errors": ("AgentWorldError",),
    "agentworld.ingest.loader": ("import_paths",),
    "agentworld.pool.keys": ("NewKey",),
    "agentworld.pool.protocol": ("Pool",),
    "agentworld.records": (
        "Annotation",
        "Batch",
        "BatchSpec",
        "DatasetRow",
        "DatasetVersion",
        "Exchange",
        "Feedback",
        "Message",
        "NewTrajectory",
        "Policy",
        "Reward",
        "Selection",
        "Splits",
        "Step",
        "Trajectory",
        "WholeTrajectory",
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
    "DatasetRow",
    "DatasetVersion",
    "EmbeddedPool",
    "Exchange",
    "Factory",
    "Feedback",
    "FrozenTrajectory",
    "Message",
    "NewKey",
    "NewTrajectory",
    "Policy",
    "Pool",
    "Reward",
    "Selection",
    "Splits",
    "Step",
    "Trajectory",
    "TrajectorySession",
    "WholeTrajectory",
    "connect",
    "create_dataset",
    "diff_datasets",
    "export_dataset",
    "import_paths",
    "open_pool",
    "read_dataset",
    "trace_row",
    "verify_dataset",
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
