"""Any generator of `reasoning-gym` as a task set: `ready = "reasoning-gym:chain_sum"`, `options` are the generator's.

The answer is what stands between <answer> and </answer> in the last message, as answers may have several lines. It
counts as right only where the generator's own checker gives full marks; its score is in the details. The checker needs
the item with all its metadata, which is generated again from the seed and options that the task keeps.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from agentworld.errors import ConfigError
from agentworld.records import Message
from agentworld.rewards.answers import extract_answer
from agentworld.tasks.base import Score, Task
from agentworld.tasks.drawing import check_split, draw, plain, seed_at, split_of

DEFAULT_COUNT = 200
ANSWER = "Give the final answer between <answer> and </answer>."
_TRIED_FOR_EACH = 50  # items looked at for each task wanted, as one in ten is held out and small generators repeat


class GeneratorSet:
    """Tasks of one generator. `options`: what it is configured with."""

    def __init__(self, generator: str, options: Mapping[str, Any]) -> None:
        known = _package().factory.DATASETS
        if generator not in known:
            raise ConfigError(
                f"reasoning-gym has no generator {generator!r}",
                path="$.ready",
                hint=f"There are: {', '.join(sorted(known))}",
            )
        self.generator, self.options = generator, dict(options)
        self.name = f"reasoning-gym.{generator}"
        _dataset(generator, 0, _frozen(self.options))  # A wrong option is told now.

    def tasks(self, count: int | None = None, *, split: str = "train", seed: int = 0) -> list[Task]:
        """`count` (default 200) different tasks; ConfigError where the generator does not have so many."""
        wanted = DEFAULT_COUNT if count is None else count
        return draw(self.name, self._made(seed, _TRIED_FOR_EACH * (wanted + 10)), wanted, check_split(split))

    def environment(self, task: Task) -> None:
        """There are no tools."""

    def check(self, task: Task, answer: str | None) -> Score:
        """1 for full marks, else 0."""
        said = extract_answer(answer, "tag")
        settings = task.settings
        item = _item(settings["generator"], settings["seed"], settings["options"])
        dataset = _dataset(settings["generator"], settings["seed"], _frozen(settings["options"]))
        graded = 0.0 if said is None else float(dataset.score_answer(said, item))
        return Score(float(graded >= 1.0), {"answer": said, "reference": task.reference, "score": graded})

    def _made(self, seed: int, limit: int) -> Iterator[Task]:
        for index in range(limit):
            own = seed_at(seed, index)
            item = _item(self.generator, own, self.options)
            question = str(item["question"])
            split, key = split_of(self.name, question)
            yield Task(
                task_id=f"{self.name}-{key}",
                task_set=self.name,
                messages=(Message(role="user", content=f"{question}\n\n{ANSWER}"),),
                reference=plain(item["answer"]),
                split=split,
                settings={"generator": self.generator, "seed": own, "options": self.options},
                difficulty=plain(item["metadata"].get("difficulty") or {}),
                provenance={"package": f"reasoning-gym {version('reasoning-gym')}", "generator": self.generator,
                            "seed": own},
            )  # fmt: skip


def _item(generator: str, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    with _turn:  # Generators may share a source of chance.
        item: dict[str, Any] = _dataset(generator, seed, _frozen(options))[0]
    return item


def _frozen(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items()))


@functools.lru_cache(maxsize=256)
def _dataset(generator: str, seed: int, options: tuple[tuple[str, Any], ...]) -> Any:
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in options}
    try:
        return _package().create_dataset(generator, seed=seed, size=1, **given)
    except (TypeError, AssertionError, ValueError) as error:
        raise ConfigError(f"reasoning-gym refuses these options for {generator}: {error}", path="$.options") from None


def _package() -> Any:
    try:
        import reasoning_gym
        import reasoning_gym.factory
    except ImportError:
        raise ConfigError(
            "the task sets of reasoning-gym need that package", hint='Install it: pip install "agentworld[tasks]"'
        ) from None
    return reasoning_gym


_turn = threading.Lock()
