"""The task's own checker as a reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentworld.records import BatchTrajectory
from agentworld.rewards.protocol import EvaluationError, Scope, Verdict, last_answer

Judge = Callable[[Mapping[str, Any], str | None], float]
"""From the task as the trajectory's record holds it, and the agent's last message, to a value from 0 to 1."""


class CheckerReward:
    """Judges the last message with a task's checker; `agentworld.tasks.checker_reward` makes one of a task set.

    `configuration`: what names the checker, so that results of another one are not taken for its own.
    """

    name = "checker"
    version = "1"
    scope: Scope = "trajectory"
    gives = ("reward",)
    needs = ()
    reads_records = False

    def __init__(self, judge: Judge, configuration: Any = None) -> None:
        self._judge = judge
        self.configuration = configuration

    def evaluate(self, run: BatchTrajectory) -> Verdict:
        """The value called `reward`; EvaluationError where the trajectory holds no task, or another set's."""
        task = run.trajectory.task
        if task is None:
            raise EvaluationError(f"trajectory {run.trajectory.trajectory_id} holds no task", path="task")
        return Verdict({"reward": self._judge(task, last_answer(run))})
