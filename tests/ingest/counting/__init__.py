"""What is in a file, counted without the importers, and what came out, counted without the file.

A format has a module NAME.py here with

    FORMAT = "name"                     what detection must find
    SAMPLES = ("folder/*.json", ...)    globs within the folder of samples that AGENTWORLD_SAMPLES names; what one glob
                                        finds is read path by path, a folder as one
    def count(path: Path) -> Counts     of a file or folder, by its own small code on the raw bytes

and its own files in ../fixtures/FORMAT/, each file or folder of which is counted alike.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import ModuleType

import msgspec

from agentworld.ingest.run import Run, RunReward
from agentworld.pool.protocol import Pool
from agentworld.records import Message, Step


@dataclass
class Counts:
    """What must be equal; None where a format's counter cannot tell. `messages`: each turn once, however many prompts
    show it. `rewards`: values of rewards, in any order. `labels`: feedback. `characters`: of the messages' texts.
    `sampled_ids`, `logprobs`: of replies.
    """

    runs: int | None = None
    steps: int | None = None
    messages: int | None = None
    tool_calls: int | None = None
    tool_results: int | None = None
    reasoning: int | None = None
    characters: int | None = None
    rewards: list[float] | None = None
    labels: int | None = None
    sampled_ids: int | None = None
    logprobs: int | None = None

    def compared(self, other: Counts) -> tuple[dict[str, object], dict[str, object]]:
        """Both, with what this one knows, to be compared."""
        mine, others = asdict(self), asdict(other)
        known = [name for name, value in mine.items() if value is not None]
        for values in (mine, others):
            if values["rewards"] is not None:
                values["rewards"] = sorted(values["rewards"])
        return {name: mine[name] for name in known}, {name: others[name] for name in known}


class Turns:
    """The turns of one run as a tree: what prompts have in common is there once."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._children: list[list[int]] = [[]]

    def _child(self, node: int, message: Message) -> int | None:
        return next((child for child in self._children[node] if self.messages[child - 1] == message), None)

    def _add(self, node: int, message: Message) -> int:
        self.messages.append(message)
        self._children.append([])
        self._children[node].append(len(self.messages))
        return len(self.messages)

    def step(self, step: Step) -> int:
        """Follow a step's prompt, and add what is new, and its reply; returns the reply's node."""
        node = 0
        for message in step.prompt_messages or ():
            node = self._child(node, message) or self._add(node, message)
        return self._add(node, step.response_message) if step.response_message is not None else node


def counts_of(runs: Iterable[Run]) -> Counts:
    """What runs hold."""
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    for run in runs:
        turns = Turns()
        for step in run.steps:
            turns.step(step)
            counts.sampled_ids += len(step.response_ids or ())
            counts.logprobs += len(step.response_logprobs or ())
        messages = [*turns.messages, *run.trailing]
        counts.runs += 1
        counts.steps += len(run.steps)
        counts.messages += len(messages)
        counts.tool_calls += sum(len(message.tool_calls) for message in messages)
        counts.tool_results += sum(message.role == "tool" for message in messages)
        counts.reasoning += sum(message.reasoning is not None for message in messages)
        counts.characters += sum(len(message.text) for message in messages)
        counts.rewards += [reward.value for reward in run.rewards]
        counts.labels += len(run.feedback)
    return counts


def counts_in(pool: Pool) -> Counts:
    """What a pool holds of imported runs, read back from it."""
    runs = []
    for trajectory in all_pages(pool.list_trajectories):
        steps = list(
            all_pages(
                functools.partial(
                    pool.list_steps,
                    trajectory_id=trajectory.trajectory_id,
                    include=["tokens", "messages", "logprobs"],
                )
            )
        )
        rewards = [(None, trajectory.rewards), *((step.step_id, step.rewards) for step in steps)]
        said = [RunReward(name=n, value=v, step=step) for step, values in rewards for n, v in values.items()]
        feedback = list(pool.list_feedback(trajectory_id=trajectory.trajectory_id).items)
        feedback += [said for step in steps for said in pool.list_feedback(step_id=step.step_id).items]
        trailing = msgspec.convert(trajectory.metadata.get("trailing", []), list[Message])
        runs.append(Run(native_id=None, steps=steps, rewards=said, feedback=feedback, trailing=trailing))
    return counts_of(runs)


def all_pages(listing):
    """Everything of a listing."""
    cursor = None
    while True:
        page = listing(cursor=cursor, limit=1000)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return


def counters() -> dict[str, ModuleType]:
    """The counting modules, by the name of their format."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {module.FORMAT: module for module in modules}
