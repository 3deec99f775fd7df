"""A task set of your own: a JSONL file and a checker.

Each line is an object with a prompt (text, or `messages` as OpenAI chat has them) and a reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import Message, digest
from agentworld.rewards.answers import AnswerPlace, Comparison, comparison, extract_answer
from agentworld.tasks.base import Environment, Score, Split, Task

EXAMPLE = '{"prompt": "2 + 2?", "reference": "4"}'
MakeEnvironment = Callable[[Task], Environment | None]


class JsonlDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The TOML of such a set.

    `file`: the JSONL file, from the definition's folder. `checker`: exact, contains, numeric or "module:function".
    `answer`: where in the last message the answer stands. `heldout`: the share of tasks in the held-out split, decided
    by each task's content. `environment`: "module:function" that makes an environment for a task.
    """

    name: str
    file: str
    kind: Literal["jsonl"] = "jsonl"
    checker: str = "exact"
    answer: AnswerPlace = "whole"
    prompt_field: str = "prompt"
    reference_field: str = "reference"
    id_field: str = "id"
    system: str | None = None
    heldout: float = 0.1
    environment: str | None = None


class JsonlTaskSet:
    """Tasks from a JSONL file, judged by a comparison with the reference. The file is read on first use."""

    def __init__(
        self, definition: JsonlDefinition, folder: Path, make_environment: MakeEnvironment | None = None
    ) -> None:
        if not 0.0 <= definition.heldout <= 1.0:
            raise ConfigError(f"heldout is a share from 0 to 1, not {definition.heldout}", path="heldout")
        self.definition = definition
        self.path = folder / definition.file
        self._compare: Comparison = comparison(definition.checker, "checker")
        self._make_environment = make_environment
        self._read: list[Task] | None = None

    @property
    def name(self) -> str:
        """The definition's name."""
        return self.definition.name

    def tasks(self, count: int | None = None, *, split: str = "train", seed: int = 0) -> list[Task]:
        """The split's tasks in the file's order; with `seed` other than 0 shuffled by it. `count` takes the first."""
        if split not in ("train", "heldout"):
            raise ConfigError(f"there is no split {split!r}", path="split", hint="Use train or heldout")
        if self._read is None:
            self._read = list(self._lines())
        chosen = [task for task in self._read if task.split == split]
        if seed:
            Random(seed).shuffle(chosen)
        if count is None:
            return chosen
        if count > len(chosen):
            raise ConfigError(f"{self.path} has only {len(chosen)} tasks of split {split}, not {count}", path="count")
        return chosen[:count]

    def environment(self, task: Task) -> Environment | None:
        """What the definition's `environment` makes, else none."""
        return self._make_environment(task) if self._make_environment is not None else None

    def check(self, task: Task, answer: str | None) -> Score:
        """Compare the answer with the reference."""
        said = extract_answer(answer, self.definition.answer)
        value = 0.0 if said is None else self._compare(said, task.reference)
        return Score(value, {"answer": said, "reference": task.reference})

    def _lines(self) -> Iterator[Task]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be read: {error.strerror}",
                path="file",
                hint=f"Paths start at the folder of the definition, {self.path.parent.absolute()}",
            ) from None
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{self.path} is not UTF-8: {error.reason}", path="file", hint="Save it as UTF-8"
            ) from None
        seen: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            task = self._task(line, f"{self.path}:{number}")
            if task.task_id in seen:
                raise ConfigError(f"the task of line {seen[task.task_id]} stands again", path=f"{self.path}:{number}")
            seen[task.task_id] = number
            yield task
        if not seen:
            raise ConfigError(f"{self.path} is empty", path="file", hint=f"Write a task a line: {EXAMPLE}")

    def _task(self, line: str, place: str) -> Task:
        definition = self.definition
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"not JSON: {error}", path=place, hint=f"Each line is one object: {EXAMPLE}") from None
        if not isinstance(row, dict):
            raise ConfigError("not a JSON object", path=place, hint=f"Each line is one object: {EXAMPLE}")
        if definition.reference_field not in row:
            raise ConfigError(f"no field {definition.reference_field!r}", path=place, hint="Or set reference_field")
        messages = self._messages(row, place)
        key = digest(definition.name.encode(), msgspec.json.encode(messages))
        part = int.from_bytes(key[:8], "big") / 2**64
        split: Split = "heldout" if part < definition.heldout else "train"
        return Task(
            task_id=str(row.get(definition.id_field) or f"{definition.name}-{key.hex()[:16]}"),
            task_set=definition.name,
            messages=messages,
            reference=row[definition.reference_field],
            split=split,
            settings=_table(row, "settings", place),
            difficulty=_table(row, "difficulty", place),
            provenance={"file": definition.file, "line": int(place.rpartition(":")[2])},
        )

    def _messages(self, row: dict[str, Any], place: str) -> tuple[Message, ...]:
        system = self.definition.system
        start = (Message(role="system", content=system),) if system else ()
        if "messages" in row:
            try:
                return start + msgspec.convert(row["messages"], tuple[Message, ...])
            except msgspec.ValidationError as error:
                raise ConfigError(f"messages: {error}", path=place) from None
        prompt = row.get(self.definition.prompt_field)
        if not isinstance(prompt, str) or not prompt:
            raise ConfigError(
                f"no text in {self.definition.prompt_field!r}", path=place, hint="Or set prompt_field, or give messages"
            )
        return (*start, Message(role="user", content=prompt))


def _table(row: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    value = row.get(name, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is no object", path=place)
    return value
