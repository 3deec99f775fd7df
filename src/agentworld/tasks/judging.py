"""A task set's checker as an evaluator of recorded trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.rewards import CheckerReward
from agentworld.tasks.base import Task, TaskSet


def checker_reward(task_set: TaskSet) -> CheckerReward:
    """An evaluator that reads each trajectory's task from its record and asks `task_set.check`."""

    def judge(record: Mapping[str, Any], answer: str | None) -> float:
        try:
            task = msgspec.convert(record, Task)
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"the record holds no task: {error}", path="task") from None
        if task.task_set != task_set.name:
            raise InvalidRequestError(f"a task of {task.task_set}, not of {task_set.name}", path="task.task_set")
        return task_set.check(task, answer).value

    return CheckerReward(judge, {"task_set": task_set.name})
