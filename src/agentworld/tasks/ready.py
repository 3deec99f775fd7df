"""The two ready task sets, made and judged by `reasoning-gym`, each with a tool of our own.

arithmetic (`chain_sum`): sums of three two-digit numbers with a calculator that takes one operation at a time, so two
calls and an answer. conversion (`base_conversion`): numbers in another base with a converter, one call and an answer.
The answer is what follows "Answer:" in the last message; it counts as right only where reasoning-gym gives full marks.

The content of a task decides its split (one in ten is held out), so the splits share no task whatever the seeds; the
seed decides which tasks of the split are drawn, and in what order.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from agentworld.engines.builtin.pocket_tokenizer import ARITHMETIC_QUESTION, CONVERSION_QUESTION
from agentworld.errors import ConfigError
from agentworld.records import Message, digest
from agentworld.rewards.answers import extract_answer
from agentworld.tasks.base import Environment, Score, Split, Task, TaskSet
from agentworld.tasks.environments import Calculator, Converter

HELD_OUT_ONE_IN = 10
DEFAULT_COUNT = 200
# reasoning-gym draws item i of seed s from Random(s + i): seeds that lie close share items.
SEED_STRIDE = 1_000_000_007


class ReasoningGymSet(ABC):
    """A task set over one generator of reasoning-gym. A subclass names it and says what its tasks look like."""

    name: str
    generator: str
    configuration: Mapping[str, Any]

    @abstractmethod
    def environment(self, task: Task) -> Environment | None:
        """A fresh environment."""

    @abstractmethod
    def question(self, item: Mapping[str, Any]) -> str | None:
        """The prompt of a generated item; None leaves the item out."""

    def tasks(self, count: int | None = None, *, split: str = "train", seed: int = 0) -> list[Task]:
        """`count` (default 200) different tasks; ConfigError where the generator does not have so many."""
        wanted = DEFAULT_COUNT if count is None else count
        chosen = _split(split)
        found: dict[str, Task] = {}
        limit = 100 * (wanted + 100)
        items = self._generate(seed * SEED_STRIDE % 2**53, limit)
        for index in range(limit):
            if len(found) >= wanted:
                break
            item = items[index]
            text = self.question(item)
            if text is None:
                continue
            key = digest(self.name.encode(), text.encode())
            if (int.from_bytes(key[:4], "big") % HELD_OUT_ONE_IN == 0) == (chosen == "heldout"):
                task = self._task(item, text, f"{self.name}-{key.hex()[:16]}", chosen, seed)
                found.setdefault(task.task_id, task)
        if len(found) < wanted:
            raise ConfigError(f"task set {self.name} has only {len(found)} tasks of split {split}, not {wanted}")
        return list(found.values())

    def check(self, task: Task, answer: str | None) -> Score:
        """1 where reasoning-gym's checker gives full marks, else 0; its own score is in the details."""
        said = extract_answer(answer, "after_answer")
        graded = 0.0 if said is None else float(self._checker.score_answer(said, {"answer": task.reference}))
        return Score(float(graded >= 1.0), {"answer": said, "reference": task.reference, "score": graded})

    def _task(self, item: Mapping[str, Any], text: str, task_id: str, split: Split, seed: int) -> Task:
        metadata = item["metadata"]
        difficulty = {name: metadata[name] for name in self.configuration.get("difficulty", ()) if name in metadata}
        return Task(
            task_id=task_id,
            task_set=self.name,
            messages=(Message(role="user", content=text),),
            reference=item["answer"],
            split=split,
            difficulty=difficulty,
            provenance={
                "generator": f"reasoning-gym {self.generator}",
                "seed": seed,
                "index": metadata["source_index"],
            },
        )

    @cached_property
    def _checker(self) -> Any:
        return self._generate(0, 1)

    def _generate(self, seed: int, size: int) -> Any:
        try:
            import reasoning_gym
        except ImportError:
            raise ConfigError(
                f"task set {self.name} needs reasoning-gym", hint='Install it: pip install "agentworld[tasks]"'
            ) from None
        settings = {name: value for name, value in self.configuration.items() if name != "difficulty"}
        return reasoning_gym.create_dataset(self.generator, seed=seed, size=size, **settings)


class ArithmeticSet(ReasoningGymSet):
    """`State the final answer to the following arithmetic problem: 26 + 81 - 93 =`."""

    name = "arithmetic"
    generator = "chain_sum"
    configuration: Mapping[str, Any] = {
        "min_terms": 3,
        "max_terms": 3,
        "min_digits": 2,
        "max_digits": 2,
        "difficulty": ("num_terms", "num_digits"),
    }

    def environment(self, task: Task) -> Environment:
        """A calculator for two numbers at a time."""
        return Calculator()

    def question(self, item: Mapping[str, Any]) -> str:
        """The wording of reasoning-gym."""
        return f"{ARITHMETIC_QUESTION} {item['metadata']['expression']} ="


class ConversionSet(ReasoningGymSet):
    """`... Now, convert the base-11 number 115 to base-13`."""

    name = "conversion"
    generator = "base_conversion"
    configuration: Mapping[str, Any] = {
        "min_base": 8,
        "max_base": 15,
        "min_value": 10,
        "max_value": 500,
        "difficulty": ("source_base", "target_base"),
    }

    def environment(self, task: Task) -> Environment:
        """A converter."""
        return Converter()

    def question(self, item: Mapping[str, Any]) -> str:
        """The wording of reasoning-gym."""
        metadata = item["metadata"]
        return (
            f"{CONVERSION_QUESTION}{metadata['source_base']} number {metadata['source_repr']} "
            f"to base-{metadata['target_base']}"
        )


# Sets of packages: the module and the class that is made with what follows the colon and the options.
PACKAGES: dict[str, tuple[str, str]] = {
    "reasoning-gym": ("agentworld.tasks.reasoning_gym_sets", "GeneratorSet"),
    "bfcl": ("agentworld.tasks.bfcl", "BfclSet"),
    "textworld": ("agentworld.tasks.textworld_games", "GameSet"),
}
READY: dict[str, type[ReasoningGymSet]] = {kind.name: kind for kind in (ArithmeticSet, ConversionSet)}


def ready_task_set(name: str, options: Mapping[str, Any] | None = None) -> TaskSet:
    """The ready set called `name`: one of READY, or PACKAGE:SET of PACKAGES with its `options`. A package is imported
    when it is named.
    """
    package, colon, within = name.partition(":")
    if colon and package in PACKAGES:
        module, kind_name = PACKAGES[package]
        made: TaskSet = getattr(importlib.import_module(module), kind_name)(within, options or {})
        return made
    kind = READY.get(name)
    if kind is None:
        known = ", ".join((*READY, *(f"{each}:NAME" for each in PACKAGES)))
        raise ConfigError(f"no ready task set is called {name!r}", path="name", hint=f"There are: {known}")
    if options:
        raise ConfigError(f"task set {name} has no options", path="$.options")
    return kind()


def _split(split: str) -> Split:
    if split == "train":
        return "train"
    if split == "heldout":
        return "heldout"
    raise ConfigError(f"there is no split {split!r}", path="split", hint="Use train or heldout")
