"""Rows with two answers of ShareGPT's family: whether the answers are whole conversations, and how they are scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.formats.chat_messages import ROLES
from agentworld.ingest.formats.noted import as_finite, as_text
from agentworld.ingest.run import RunReward
from agentworld.records import Message

TALKS = ("conversations", "messages", "conversation", "dialogue", "dialog", "chat", "turns")
PROMPTS = ("prompt", "instruction", "question", "query")
PAIRS = (("chosen", "rejected"), ("chosen_messages", "rejected_messages"))
ROLE, TEXT = ("role", "from", "speaker"), ("content", "value", "text")
SCORES = tuple(
    (name.format(side=side, kind=kind), side, kind)
    for side in ("chosen", "rejected")
    for kind in ("score", "rating", "reward")
    for name in ("{kind}_{side}", "{side}_{kind}", "{side}-{kind}")
)

NUMBERS = frozenset(("reward", "rewards", "score", "scores"))
"""Columns that are rewards, as far as they are numbers."""


def rewards_in(name: str, value: Any, steps: list[str]) -> list[RunReward]:
    """The rewards that a column says: a number, also as text; numbers by name; or one for each reply. None where any of
    it is something else, so that the column stays as it is.
    """
    found: list[tuple[str, float | None, str | None]] = [(name, _number(value), None)]
    if isinstance(value, dict) and value:
        found = [(str(key) or name, _number(each), None) for key, each in value.items()]
    elif isinstance(value, list) and value and len(value) == len(steps):
        one = name.removesuffix("s")
        found = [(one, _number(each), step) for each, step in zip(value, steps, strict=True) if each is not None]
    rewards = [RunReward(name=key, value=number, step=step) for key, number, step in found if number is not None]
    return rewards if len(rewards) == len(found) else []


def _number(value: Any) -> float | None:
    try:
        return as_finite(float(value) if isinstance(value, str) and len(value) < 40 else value)
    except ValueError:
        return None


def columns_within(row: Mapping[str, Any], pair: tuple[str, str]) -> list[str] | None:
    """The columns that say nothing beyond two answers that are whole conversations: these begin as the prompt does, or
    ask what it asks last. None where they are no whole conversations, so that the prompt stands before them.
    """
    answers = [_turns(row[name]) for name in pair]
    if not all(turns and turns[0][0] == "user" for turns in answers):
        return None
    asked = {name: _turns(_as_talk(row[name])) for name in (*TALKS, *PROMPTS) if row.get(name) not in (None, "", [])}
    if not asked:
        return []
    prompt = next((turns for name, turns in asked.items() if isinstance(row[name], list)), next(iter(asked.values())))
    last = next((turn for turn in reversed(prompt) if turn[0] == "user"), None)
    if not prompt or not all(turns[0] == prompt[0] or last in turns[1:] for turns in answers):
        return None
    within = [set(turns) for turns in answers]
    return [name for name, said in asked.items() if any(turns.issuperset(said) for turns in within)]


def same(one: Message, other: Message) -> bool:
    """Whether two messages say the same."""
    return (one.role, one.content) == (other.role, other.content)


def _as_talk(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [{"role": "user", "content": given}]


def _turns(given: Any) -> list[tuple[str, str]]:
    """The roles and contents of raw messages, without the system's, for comparison."""
    turns = []
    for each in given if isinstance(given, list) else [given]:
        if isinstance(each, dict):
            role = next((each[key] for key in ROLE if isinstance(each.get(key), str)), "")
            content = next((each[key] for key in TEXT if key in each), None)
            named = ROLES.get(role.lower(), role)
            if named not in ("system", "developer"):
                turns.append((named, as_text(content).strip()))
    return turns
