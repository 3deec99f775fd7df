"""One action in an environment; whatever a policy sends is an observation, never a crash."""

from __future__ import annotations

from agentworld.tasks import Environment


async def act(environment: Environment, name: str, arguments: str) -> tuple[str, bool]:
    """Run a tool call with the raw text of its arguments; returns what is observed and whether the task is over."""
    observed = environment.step(name, arguments)
    return observed.content, observed.done
