"""Signs of shortcuts: what solving cost, when the answer was first seen, and answers that nothing led to."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Run, Turn
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.secret_rules import SCANNED
from agentworld.curation.checks.settings import CheckContext

_WORD = re.compile(r"\w")
_MOST_REFERENCES = 16
_LONGEST_REFERENCE = 2_000  # characters


class _Place(NamedTuple):
    """Turn number from 1, the turn, the message's index in its prompt, its text and the place in it."""

    number: int
    turn: Turn
    message: int
    text: str
    start: int


def references(run: Run, context: CheckContext) -> list[str]:
    """The task's right answers that are long enough to be looked for, in small letters; any one suffices."""
    found = (run.trajectory.task or {}).get(context.settings.reference_field)
    values: list[Any] = found if isinstance(found, list) else [found]
    texts = (str(value).strip().lower() for value in values[:_MOST_REFERENCES] if _is_plain(value))
    return [text for text in texts if context.settings.shortest_reference <= len(text) <= _LONGEST_REFERENCE]


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def find_whole(needles: list[str], text: str) -> int | None:
    """Where the first of the needles, which are in small letters, stands in `text` with no letter or digit beside.

    The first million characters are searched, in time linear in them.
    """
    low = text[:SCANNED].lower()
    for needle in needles:
        if needle in low:
            match = _whole(needle).search(low)
            if match is not None:
                return min(match.start(), len(text))
    return None


@functools.lru_cache(maxsize=64)
def _whole(needle: str) -> re.Pattern[str]:
    before = r"(?<!\w)" if _WORD.match(needle[0]) else ""
    after = r"(?!\w)" if _WORD.match(needle[-1]) else ""
    return re.compile(before + re.escape(needle) + after)


def _seen(run: Run, needles: list[str]) -> _Place | None:
    """Where a tool, or the user after the opening, first gave the answer."""
    for number, turn in enumerate(run.kept, 1):
        for at, message in turn.new:
            if message.role == "tool" or (message.role == "user" and number > 1):
                start = find_whole(needles, message.text)
                if start is not None:
                    return _Place(number, turn, at, message.text, start)
    return None


def _in_opening(run: Run, needles: list[str]) -> _Place | None:
    turn = run.turns[0] if run.turns else None
    for at, message in turn.new if turn is not None else ():
        if message.role != "tool":
            start = find_whole(needles, message.text)
            if start is not None and turn is not None:
                return _Place(1, turn, at, message.text, start)
    return None


@check(
    "solving_cost",
    scope="trajectory",
    values="calls made, or replies where none were",
    says="What solving took; beside it, in the evidence, replies and reply tokens. Low values among a task's solved "
    "rollouts are shortcuts, high ones detours.",
    fails="Several calls in one reply count each, one call that does everything counts once. It says nothing of "
    "whether the task was solved.",
)
def solving_cost(run: Run, context: CheckContext) -> Iterator[Found]:
    calls = replies = tokens = 0
    for turn in run.kept:
        if turn.reply is not None:
            replies += 1
            calls += len(turn.reply.tool_calls)
            tokens += turn.step.response_length or 0
    if replies:
        yield Found(calls or replies, {"calls": calls, "replies": replies, "tokens": tokens})


@check(
    "first_answer_hit",
    scope="trajectory",
    values="number of the turn, from 1, whose prompt first held it",
    says="When the task's reference first stood in what tools (or later messages of the user) gave back. Hits at the "
    "very beginning are signs of an answer that the environment gives away.",
    fails="References under `shortest_reference` characters are not looked for, nor are other spellings of the answer. "
    "Common words and round numbers hit by chance.",
)
def first_answer_hit(run: Run, context: CheckContext) -> Iterator[Found]:
    needles = references(run, context)
    found = _seen(run, needles) if needles else None
    if found is not None:
        number, turn, at, text, start = found
        evidence = {
            "step": turn.step.step_id,
            "message": at,
            "turns": len(run.kept),
            "excerpt": excerpt(text, max(0, start - 40)),
        }
        yield Found(number, evidence)


@check(
    "answer_without_evidence",
    scope="trajectory",
    gates=True,
    says="The last reply holds the task's reference, the model called tools, and nothing that they gave back held it: "
    "the answer was known or guessed, not found.",
    fails="Takes answers that are computed from what was found, and answers in another spelling than the source's, for "
    "guessed ones. Tasks whose answer is not to be looked up (mathematics) should not be judged by it.",
)
def answer_without_evidence(run: Run, context: CheckContext) -> Iterator[Found]:
    needles = references(run, context)
    last = run.last if needles else None
    if last is None or last.reply is None or not any(turn.reply and turn.reply.tool_calls for turn in run.kept):
        return
    text = last.reply.text
    start = find_whole(needles, text)
    if start is None or _seen(run, needles) is not None or _in_opening(run, needles) is not None:
        return
    evidence = {
        "step": last.step.step_id,
        "message": "reply",
        "excerpt": excerpt(text, max(0, start - 40)),
    }
    yield Found(True, evidence)


@check(
    "leaked_reference",
    scope="trajectory",
    gates=True,
    says="The task's reference stands word for word in the prompt that the trajectory begins with.",
    fails="Takes choices of a multiple-choice question, and short answers that occur by chance, for leaks. References "
    "under `shortest_reference` characters are not looked for; rewordings are overlooked.",
)
def leaked_reference(run: Run, context: CheckContext) -> Iterator[Found]:
    needles = references(run, context)
    found = _in_opening(run, needles) if needles else None
    if found is not None:
        _, turn, at, text, start = found
        evidence = {"step": turn.step.step_id, "message": at, "excerpt": excerpt(text, max(0, start - 40))}
        yield Found(True, evidence)
