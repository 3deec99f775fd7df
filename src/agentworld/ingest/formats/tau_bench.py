"""Results of tau-bench: conversations with a simulated user, and displays of them as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes, each_alone
from agentworld.ingest.formats.chat_messages import ChatReader
from agentworld.ingest.formats.groups import group_of
from agentworld.ingest.formats.noted import Values
from agentworld.ingest.formats.outcomes import put_metadata, put_value
from agentworld.ingest.run import Run, linear_steps
from agentworld.records import Message

_READ = frozenset(("task_id", "reward", "info", "traj", "trial"))
_OF_INFO = frozenset(("task", "reward_info"))
_DISPLAY = "messages_display"
_TURN = re.compile(r"^(system|user|assistant|tool): ?", re.MULTILINE)


class TauBench:
    """See Format."""

    name = "tau-bench"
    title = "tau-bench results, and displays of conversations"
    plain_chat = True
    bundles = staticmethod(each_alone)

    def claims(self, head: Head) -> bool:
        """By the fields of its results."""
        return any(_is_result(value) or _is_display(value) for value in head.documents)

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a result."""
        for entry in bundle:
            values = Values(entry.name, note)
            for place, value in values.documents(entry):
                if _is_result(value):
                    yield _result(value, values, place)
                elif _is_display(value):
                    yield _display(value, values, place)
                else:
                    values.lost(place, "it is no result of tau-bench: it needs task_id and traj, or messages_display")


def _is_result(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("traj"), list) and "task_id" in value


def _is_display(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get(_DISPLAY), str)


def _result(row: dict[str, Any], values: Values, place: str) -> Run:
    run = Run(native_id=None)
    said = ChatReader(values, run.media).conversation(row["traj"], f"{place}.traj")
    run.steps, run.trailing = linear_steps(said.messages)
    info = values.object(row, "info", place) or {}
    told = info.get("reward_info")
    details = values.bounded(told, f"{place}.info.reward_info") if isinstance(told, dict) else None
    put_value(run, "reward", row.get("reward"), values, f"{place}.reward", details)
    if info.get("error") is not None:
        run.status = "failed"
    task, given = row["task_id"], info.get("task")
    if isinstance(task, (int, str)):
        run.task = {"task_id": str(task)}
        asked = given if isinstance(given, dict) else {}
        run.group_id = group_of("tau-bench", str(task), asked, _policy(said.messages))
        if (kept := values.bounded(asked, f"{place}.info.task")) is not None:
            run.task["task"] = kept
    run.rollout_index = values.count(row, "trial", place)
    about = {str(index): each for index, each in said.about.items()}
    if (kept := values.bounded(about, f"{place}.traj (other fields)")) is not None:
        run.metadata["messages"] = kept
    put_metadata(run, row, _READ, values, place)
    put_metadata(run, info, _OF_INFO, values, f"{place}.info")
    return run


def _policy(messages: list[Message]) -> str:
    """What tells the domain, which a result does not name."""
    return messages[0].text if messages and messages[0].role == "system" else ""


def _display(row: dict[str, Any], values: Values, place: str) -> Run:
    """A conversation as text. The calls of tools are not in it: a reply that only called shows `None`."""
    run = Run(native_id=None)
    reader = ChatReader(values, run.media)
    text = row[_DISPLAY]
    turns = list(_TURN.finditer(text))
    if not turns or text[: turns[0].start()].strip():
        values.lost(f"{place}.{_DISPLAY}", "it does not begin with a turn; what stands before the first is left out")
    messages: list[Message] = []
    for number, turn in enumerate(turns):
        end = turns[number + 1].start() if number + 1 < len(turns) else len(text)
        said = text[turn.end() : end]
        said = said.removesuffix("\n") if number + 1 < len(turns) else said
        content = None if turn[1] == "assistant" and said == "None" else said
        messages.append(reader.message({"role": turn[1], "content": content}, f"{place}.{_DISPLAY}"))
    run.steps, run.trailing = linear_steps(messages)
    if any(message.role == "tool" for message in messages):
        values.said(f"{place}.{_DISPLAY}", "a display does not show which tools were called, only their results")
    put_metadata(run, row, frozenset((_DISPLAY,)), values, place)
    return run


FORMAT = TauBench()
