"""Tool calling from the data of `bfcl-eval`: `ready = "bfcl:simple_python"`.

The package's files of questions, tools and possible answers are read; its code is not imported, as it pins packages of
many providers (so `pip install --no-deps bfcl-eval` is enough, or `options.data` names the folder of its data). Its
categories of one turn are here; those of several turns run Python classes of the package, and are not.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import Message, Tool
from agentworld.tasks.base import Observation, Score, Task
from agentworld.tasks.bfcl_calls import Call, as_tool, call_from, calls_of_text, judge
from agentworld.tasks.drawing import check_split, chosen, refuse_unknown, split_of

CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)
FILE = "BFCL_v4_{category}.json"


class BfclSet:
    """Tasks of one category. The agent calls the task's tools, which only record the calls, and says something last."""

    def __init__(self, category: str, options: Mapping[str, Any]) -> None:
        if category not in CATEGORIES:
            raise ConfigError(
                f"there are no tasks of bfcl's category {category!r}",
                path="$.ready",
                hint=f"There are: {', '.join(CATEGORIES)}",
            )
        self.category = category
        self.name = f"bfcl.{category}"
        refuse_unknown(self.name, options, {"data": str})
        self._data: str | None = options.get("data")
        self._read: list[Task] | None = None

    def tasks(self, count: int | None = None, *, split: str = "train", seed: int = 0) -> list[Task]:
        """The split's tasks in the file's order; with `seed` other than 0 shuffled by it. `count` takes the first."""
        if self._read is None:
            self._read = list(self._tasks())
        return chosen(self.name, self._read, count, check_split(split), seed)

    def environment(self, task: Task) -> Recorder:
        """The task's tools."""
        return Recorder(task)

    def check(self, task: Task, answer: str | None) -> Score:
        """Judge calls that an agent without tools wrote as JSON: `[{"name": ..., "arguments": {...}}]`."""
        return judge(calls_of_text(answer), task.reference, list(task.settings["tools"]))

    def _tasks(self) -> Iterator[Task]:
        answers = {row["id"]: row["ground_truth"] for row in self._rows("possible_answer/", optional=True)}
        for row in self._rows(""):
            turns = row["question"]
            messages = tuple(Message(role=each["role"], content=each["content"]) for each in turns[0])
            tools = [as_tool(function) for function in row["function"]]
            truth = answers.get(row["id"])
            # Where there is no possible answer the question is whether to call at all.
            reference = {"calls": truth} if truth is not None else {"any": "irrelevance" not in self.category}
            split, _ = split_of(self.name, [msgspec.to_builtins(messages), row["function"]])
            yield Task(
                task_id=f"{self.name}-{row['id']}",
                task_set=self.name,
                messages=messages,
                reference=reference,
                split=split,
                settings={"tools": [msgspec.to_builtins(tool) for tool in tools]},
                difficulty={"tools": len(tools), "calls": len(truth or ())},
                provenance={"package": _package(), "file": FILE.format(category=self.category), "id": row["id"]},
            )

    def _rows(self, within: str, optional: bool = False) -> Iterator[dict[str, Any]]:
        path = _folder(self._data) / (within + FILE.format(category=self.category))
        if optional and not path.exists():
            return
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read: {error.strerror}", path="$.options.data", hint="Name the data of bfcl-eval"
            ) from None
        for line in text.splitlines():
            if line.strip():
                yield json.loads(line)


class Recorder:
    """The tools of one task: a call is recorded, and answered with nothing to go by. Judges what was called."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._tools: list[Tool] = list(task.settings["tools"])
        self.calls: list[Call] = []

    @property
    def tools(self) -> Sequence[Tool]:
        """The task's functions."""
        return self._tools

    def reset(self) -> None:
        """Nothing was called."""
        self.calls.clear()

    def step(self, name: str, arguments: str) -> Observation:
        """Record the call; what is no call of a tool is recorded too, and is wrong."""
        call = call_from(name, arguments)
        self.calls.append(call)
        if call.arguments is None:
            return Observation("error: the arguments are no JSON object")
        return Observation("recorded" if self._knows(name) else f"error: there is no tool {name[:60]}")

    def close(self) -> None:
        """There is nothing to free."""

    def check(self, answer: str | None) -> Score:
        """Whether the calls, together, are one of the possible answers."""
        return judge(self.calls, self._task.reference, self._tools)

    def _knows(self, name: str) -> bool:
        return any(tool["function"]["name"] == name for tool in self._tools)


def _folder(given: str | None) -> Path:
    if given is not None:
        return Path(given)
    found = importlib.util.find_spec("bfcl_eval")  # It is not imported.
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            "the task sets of bfcl need the data of bfcl-eval",
            hint="pip install --no-deps bfcl-eval, or set options.data to the folder of its data",
        )
    return Path(next(iter(found.submodule_search_locations))) / "data"


def _package() -> str:
    try:
        return f"bfcl-eval {version('bfcl-eval')}"
    except PackageNotFoundError:
        return "bfcl-eval"
