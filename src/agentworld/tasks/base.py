"""What a task, an environment and a task set are.

Left out on purpose: environments in other processes. The runner serves these same objects over HTTP to agents that are
not in its process (`agents.environment_server`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from agentworld.records import Message, Tool

Split = Literal["train", "heldout"]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. `task_id` names its content: the same problem has the same id whichever seed drew it.

    `messages`: the prompt. `reference`: what the checker compares with, never shown to an agent. `settings`: what the
    environment needs. `difficulty`, `provenance`: free JSON.
    """

    task_id: str
    task_set: str
    messages: tuple[Message, ...]
    reference: Any = None
    split: Split = "train"
    settings: dict[str, Any] = {}
    difficulty: dict[str, Any] = {}
    provenance: dict[str, Any] = {}

    def payload(self) -> dict[str, Any]:
        """The task as JSON for the trajectory's record."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


class Score(NamedTuple):
    """A checker's verdict: `value` from 0 (wrong) to 1 (right), and what it looked at."""

    value: float
    details: dict[str, Any]


class Observation(NamedTuple):
    """What an action brought about; `done` ends the rollout."""

    content: str
    done: bool = False


@runtime_checkable
class Environment(Protocol):
    """What answers an agent's actions. It owns its state; one object belongs to one rollout."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools with their schemas, in OpenAI chat's shape."""
        ...

    def reset(self) -> None:
        """Go back to the state at the start of the task."""
        ...

    def step(self, name: str, arguments: str) -> Observation:
        """Run tool `name` with the raw text of its arguments. What a policy gets wrong is an observation, no error."""
        ...

    def close(self) -> None:
        """Free what the environment holds; called once."""
        ...


@runtime_checkable
class JudgingEnvironment(Environment, Protocol):
    """An environment that judges what was done in it; its verdict stands in the place of the task set's."""

    def check(self, answer: str | None) -> Score:
        """Judge the state that the agent left, and the last thing that it said."""
        ...


class TaskSet(Protocol):
    """Yields tasks and judges answers."""

    @property
    def name(self) -> str:
        """Identifies the set in records and reports."""
        ...

    def tasks(self, count: int | None = None, *, split: str = "train", seed: int = 0) -> list[Task]:
        """`count` different tasks of a split (None: all, or the set's default number); the same call, the same tasks.

        No task is in both splits, whatever the seeds.
        """
        ...

    def environment(self, task: Task) -> Environment | None:
        """A fresh environment at the start of the task; None where the task has no tools."""
        ...

    def check(self, task: Task, answer: str | None) -> Score:
        """Judge the last thing that the agent said; None is no answer."""
        ...
