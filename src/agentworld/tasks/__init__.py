"""Task sets: problems with their environments and checkers."""

from agentworld.tasks.base import Environment, JudgingEnvironment, Observation, Score, Split, Task, TaskSet
from agentworld.tasks.definition import read_task_set, task_set_from
from agentworld.tasks.jsonl import JsonlDefinition, JsonlTaskSet
from agentworld.tasks.judging import checker_reward
from agentworld.tasks.ready import ready_task_set

__all__ = [
    "Environment",
    "JsonlDefinition",
    "JsonlTaskSet",
    "JudgingEnvironment",
    "Observation",
    "Score",
    "Split",
    "Task",
    "TaskSet",
    "checker_reward",
    "read_task_set",
    "ready_task_set",
    "task_set_from",
]
