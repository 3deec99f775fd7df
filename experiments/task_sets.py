"""The task sets of the experiments, each with an expert whose habits a small model can begin with.

The expert is right every time, but on a share of the tasks it answers at once, from its head, which a small model
cannot learn to do. So whoever imitates it gets those wrong, and only rewards tell that the tool is the better way.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from agentworld.engines.builtin.pocket_tokenizer import ANSWER, CALCULATOR_CALL, CONVERTER_CALL
from agentworld.records import digest
from agentworld.tasks import Task, TaskSet, ready_task_set
from agentworld.tasks.ready import ArithmeticSet

DIRECT_SHARE = 0.4
"""The share of tasks that the expert answers at once."""


class Lesson(ABC):
    """A task set, its expert, and the limits of an agent in it.

    `turns`: most model calls of a rollout. `reply_tokens`: most tokens of a reply. `games`: most different training
    tasks, where making them is slow (None: no limit).
    """

    name: str
    turns: int
    reply_tokens: int = 48
    games: int | None = None

    def __init__(self, direct_share: float = DIRECT_SHARE) -> None:
        self.direct_share = direct_share

    @property
    @abstractmethod
    def task_set(self) -> TaskSet:
        """The tasks with their environments and checker."""

    @abstractmethod
    def worked(self, task: Task) -> list[str]:
        """The expert's replies where it works with the tool, one a turn."""

    @abstractmethod
    def direct(self, task: Task) -> list[str]:
        """Its only reply where it answers at once."""

    def expert(self, task: Task) -> list[str]:
        """What the expert says; which way it takes depends on the task's wording alone."""
        key = digest(b"expert", task.messages[0].text.encode())
        at_once = int.from_bytes(key[:4], "big") < self.direct_share * 2**32
        return self.direct(task) if at_once else self.worked(task)


class Sums(Lesson):
    """Sums of three numbers with a calculator for two: two calls and an answer."""

    name = "sums"
    turns = 4

    @property
    def task_set(self) -> TaskSet:
        """The ready set."""
        return ready_task_set("arithmetic")

    def worked(self, task: Task) -> list[str]:
        """One operation a call, then the last result."""
        parts = task.messages[0].text.split(": ", 1)[1].removesuffix(" =").split()
        total, replies = int(parts[0]), []
        for operator, number in zip(parts[1::2], parts[2::2], strict=True):
            replies.append(_call(f'{CALCULATOR_CALL}{total} {operator} {number}"}}}}'))
            total += int(number) if operator == "+" else -int(number)
        return [*replies, f"{ANSWER} {total}"]

    def direct(self, task: Task) -> list[str]:
        """The sum."""
        return [f"{ANSWER} {task.reference}"]


class LongSumSet(ArithmeticSet):
    """Sums of six numbers."""

    name = "long-sums"
    configuration: Mapping[str, Any] = {
        "min_terms": 6,
        "max_terms": 6,
        "min_digits": 1,
        "max_digits": 1,
        "difficulty": ("num_terms", "num_digits"),
    }


class LongSums(Sums):
    """Sums of six numbers: five calls and an answer."""

    name = "long-sums"
    turns = 7

    @property
    def task_set(self) -> TaskSet:
        """Six terms of one digit."""
        return LongSumSet()


class Conversion(Lesson):
    """Numbers in another base, with a converter: one call of three arguments and an answer."""

    name = "conversion"
    turns = 3

    @property
    def task_set(self) -> TaskSet:
        """The ready set."""
        return ready_task_set("conversion")

    def worked(self, task: Task) -> list[str]:
        """A call with number and bases, then its result."""
        words = task.messages[0].text.rsplit("convert the base-", 1)[1].split()
        before, between, then = CONVERTER_CALL
        asked = f"{before}{words[2]}{between}{words[0]}{then}{words[-1].removeprefix('base-')}}}}}"
        return [_call(asked), f"{ANSWER} {task.reference}"]

    def direct(self, task: Task) -> list[str]:
        """The number."""
        return [f"{ANSWER} {task.reference}"]


class TextGame(Lesson):
    """Text games of textworld: a quest of two commands. The expert at times says what to do, and does not do it."""

    name = "text-game"
    turns = 5
    games = 300

    @property
    def task_set(self) -> TaskSet:
        """Games of one room; four commands are allowed."""
        return ready_task_set("textworld:quest", {"rooms": 1, "objects": 3, "quest_length": 2, "most_commands": 4})

    def worked(self, task: Task) -> list[str]:
        """The commands that win."""
        return [_call(f'{{"name": "act", "arguments": {{"command": "{each}"}}}}') for each in task.reference]

    def direct(self, task: Task) -> list[str]:
        """It says what it would do, and does nothing."""
        return [f"{ANSWER} {task.reference[0]}"]


LESSONS: dict[str, type[Lesson]] = {kind.name: kind for kind in (Sums, LongSums, Conversion, TextGame)}


@functools.cache
def drawn_tasks(lesson: str, count: int, split: str, seed: int) -> list[Task]:
    """Tasks of a lesson; kept, as other runs are evaluated on the same, and games are slow to make."""
    return LESSONS[lesson]().task_set.tasks(count, split=split, seed=seed)


def _call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"
