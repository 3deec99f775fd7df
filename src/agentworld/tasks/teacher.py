"""A scripted expert for the ready task sets, for `testing.ScriptedEngine`.

It is right every time, and has two ways of being right: it knows the answer and says so at once, or it works with the
tool. Which one depends on the wording of the task alone. A small model that imitates it can learn the second way but
not the first, and only its own rollouts and their rewards tell it so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentworld.engines.builtin.pocket_tokenizer import (
    ANSWER,
    ARITHMETIC_QUESTION,
    CALCULATOR_CALL,
    CONVERSION_QUESTION,
    CONVERTER_CALL,
)
from agentworld.records import digest
from agentworld.tasks.environments import in_base

DIRECT_SHARE = 0.35
"""The share of tasks that the teacher answers at once."""

_SUM = re.compile(re.escape(ARITHMETIC_QUESTION) + r"((?: [+-]? ?\d+)+) =")
_CONVERSION = re.compile(re.escape(CONVERSION_QUESTION) + r"(\d+) number ([0-9a-z]+) to base-(\d+)")


class Asked(Protocol):
    """What the teacher reads of a `ScriptedRequest`."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The conversation, in OpenAI chat's shape."""
        ...


def reply(request: Asked) -> str:
    """The expert's next turn in the Qwen3 format: a pure function of the conversation."""
    question = ""
    results: list[str] = []
    for message in request.messages:
        text = _text(message.get("content"))
        if message.get("role") == "user":
            question, results = text, []
        elif message.get("role") == "tool":
            results.append(text.strip())
    found = _SUM.search(question)
    if found:
        return _sum(question, found[1].split(), results)
    found = _CONVERSION.search(question)
    if found:
        return _conversion(question, int(found[1]), found[2], int(found[3]), results)
    return f"{ANSWER} I only know the ready task sets."


def answers_directly(question: str) -> bool:
    """Whether the teacher answers this task at once."""
    return int.from_bytes(digest(b"teacher", question.encode())[:4], "big") < DIRECT_SHARE * 2**32


def _sum(question: str, terms: list[str], results: list[str]) -> str:
    """`terms`: numbers and operators in turn."""
    operators = (len(terms) - 1) // 2
    done = len(results)
    if answers_directly(question):
        total = int(terms[0])
        for operator, number in zip(terms[1::2], terms[2::2], strict=True):
            total += int(number) if operator == "+" else -int(number)
        return f"{ANSWER} {total}"
    if done >= operators:
        return f"{ANSWER} {results[-1]}"
    left = results[-1] if results else terms[0]
    expression = f"{left} {terms[1 + 2 * done]} {terms[2 + 2 * done]}"
    return _call(CALCULATOR_CALL + expression + '"}}')


def _conversion(question: str, source: int, number: str, target: int, results: list[str]) -> str:
    if answers_directly(question):
        return f"{ANSWER} {in_base(int(number, source), target)}"
    if results:
        return f"{ANSWER} {results[-1]}"
    before, between, then = CONVERTER_CALL
    return _call(f"{before}{number}{between}{source}{then}{target}" + "}}")


def _call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def _text(content: Any) -> str:
    """The text of a message's content, which is text or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if isinstance(part, Mapping))
