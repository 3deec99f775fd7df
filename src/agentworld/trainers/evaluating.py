"""When a job evaluates its policy, and what it asks of whoever runs the agents."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from agentworld.errors import ConfigError


class EvaluationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Agents on held-out tasks, through the gateway, every so many batches and after the last one.

    `task_sets`, `agents`: tables as in the configuration of `agentworld run`; without agents it is our loop, and tasks
    are of the split heldout unless a table says otherwise. `url`: the server with the gateway; by default the job's.
    `model`: its name there; by default that of publish. `first`: also before the first batch. `temperature`,
    `max_tokens`: of sampling.
    """

    task_sets: list[dict[str, Any]]
    agents: list[dict[str, Any]] = []
    every: int = 1
    first: bool = True
    url: str | None = None
    model: str | None = None
    channel: str = "val"
    rollouts: int = 1
    temperature: float = 0.0
    max_tokens: int | None = None
    concurrency: int = 16

    def __post_init__(self) -> None:
        for name in ("every", "rollouts", "concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}", path=f"evaluation.{name}")
        if not self.task_sets:
            raise ConfigError("there are no task_sets", path="evaluation.task_sets")
        if not self.temperature >= 0:
            raise ConfigError(f"temperature must be 0 or more, not {self.temperature}", path="evaluation.temperature")

    def due(self, version: int, batches: int) -> bool:
        """Whether the policy of a version is evaluated in a job of so many batches."""
        if version == 0:
            return self.first
        return version % self.every == 0 or version == batches


class Evaluator(Protocol):
    """Runs the agents."""

    def evaluate(self, version: int) -> dict[str, float | None]:
        """The numbers of the policy of a version: reward, its standard error, counts; what an earlier process left of
        it is gone on with.
        """
