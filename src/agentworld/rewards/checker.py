"""The task's own checker as a reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentworld.errors import InvalidRequestError
from agentworld.records import BatchTrajectory
from agentworld.rewards.evaluator import last_answer

Judge = Callable[[Mapping[str, Any], str | None], float]
"""From the task as the trajectory's record holds it, and the agent's last message, to a value from 0 to 1."""


class CheckerReward:
    """Judges the last message with a task's checker; `agentworld.tasks.checker_reward` makes one of a task set."""

    name = "checker"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def evaluate(self, run: BatchTrajectory) -> dict[str, float]:
        """`{"reward": value}`; InvalidRequestError where the trajectory holds no task, or another set's."""
        task = run.trajectory.task
        if task is None:
            raise InvalidRequestError(f"trajectory {run.trajectory.trajectory_id} holds no task", path="task")
        return {"reward": self._judge(task, last_answer(run))}
