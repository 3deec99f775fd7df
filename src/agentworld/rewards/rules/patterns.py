"""Rules over patterns: a regular expression, and the format of a reply.

Expressions run in a child process, as one over a text that a policy chose may take for ever.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from agentworld.records import BatchTrajectory
from agentworld.rewards.answers import AnswerPlace, extract_answer
from agentworld.rewards.isolation.children import children
from agentworld.rewards.protocol import EvaluationError, EvaluatorKind, Verdict, last_answer
from agentworld.rewards.rules.answer import shown

Seconds = Annotated[float, msgspec.Meta(gt=0)]
_MEMORY_MB = 1024


class Regex(EvaluatorKind, frozen=True, kw_only=True):
    """1 where `pattern` (Python's syntax) is found in the answer, else 0.

    `full`: it has to match all of it. `flags`: letters of i (case), m (lines), s (dot takes line ends), x (verbose).
    `absent`: the other way round, 1 where it is not found. `seconds`: how long it may take.
    """

    pattern: str
    answer: AnswerPlace = "whole"
    revision: ClassVar[int] = 2
    full: bool = False
    flags: str = ""
    absent: bool = False
    seconds: Seconds = 5.0

    def __post_init__(self) -> None:
        compiled(self.pattern, self.flags)

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """1 or 0; no answer matches nothing."""
        said = extract_answer(last_answer(subject), self.answer)
        payload = {"pattern": self.pattern, "flags": self.flags, "full": self.full, "text": said or ""}
        found = said is not None and children(_MEMORY_MB).call(f"{__name__}:search", payload, seconds=self.seconds)
        value = float(bool(found) != self.absent)
        return Verdict({self.reward: value}, {"answer": shown(said), "found": shown(found) if found else None})


class Format(EvaluatorKind, frozen=True, kw_only=True):
    """1 where the last reply has the form, else 0.

    `tags`: each stands once as <tag>...</tag>, in this order, none within another; `only`: and nothing but white space
    stands outside of them. `pattern`: the whole reply matches this regular expression. At least one of both.
    """

    tags: tuple[str, ...] = ()
    only: bool = True
    pattern: str | None = None
    flags: str = "s"
    seconds: Seconds = 5.0

    def __post_init__(self) -> None:
        if not self.tags and self.pattern is None:
            raise ValueError("a format needs `tags` or `pattern`")
        if self.pattern is not None:
            compiled(self.pattern, self.flags)

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """1 or 0, and what is wrong."""
        said = last_answer(subject)
        if said is None:
            return Verdict({self.reward: 0.0}, {"wrong": "no reply"})
        wrong = self._wrong_tags(said.strip()) if self.tags else None
        if wrong is None and self.pattern is not None:
            payload = {"pattern": self.pattern, "flags": self.flags, "full": True, "text": said.strip()}
            matched = children(_MEMORY_MB).call(f"{__name__}:search", payload, seconds=self.seconds)
            wrong = None if matched is not None else "the pattern does not match"
        return Verdict({self.reward: float(wrong is None)}, {"wrong": wrong} if wrong else {})

    def _wrong_tags(self, text: str) -> str | None:
        end = 0
        for tag in self.tags:
            opening, closing = f"<{tag}>", f"</{tag}>"
            if text.count(opening) != 1 or text.count(closing) != 1:
                return f"{opening} and {closing} do not stand once each"
            start, stop = text.index(opening), text.index(closing)
            if start < end or stop < start:
                return f"{opening} is out of order"
            if self.only and text[end:start].strip():
                return f"there is text before {opening}"
            end = stop + len(closing)
        return "there is text after the last tag" if self.only and text[end:].strip() else None


def compiled(pattern: str, flags: str) -> re.Pattern[str]:
    """The expression; ValueError says what is wrong with it."""
    known: dict[str, Any] = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
    if set(flags) - set(known):
        raise ValueError(f"flags are letters of i, m, s and x, not {flags!r}")
    try:
        return re.compile(pattern, sum(known[each] for each in set(flags)))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


def search(payload: dict[str, Any]) -> str | None:
    """What the pattern finds in the text; runs in a child."""
    pattern = compiled(payload["pattern"], payload["flags"])
    found = pattern.fullmatch(payload["text"]) if payload["full"] else pattern.search(payload["text"])
    return found[0][:1000] if found else None


class Length(EvaluatorKind, frozen=True, kw_only=True):
    """A penalty for length: `high` up to `free`, falling in a straight line to `low` at `limit`, and `low` beyond.

    With the defaults of `low` and `high` it is the soft overlong punishment of DAPO (arXiv 2503.14476, equation 13).
    `unit`: tokens as the engine counted them, or characters of text and reasoning. `of`: the last reply, or all replies
    together.
    """

    free: Annotated[int, msgspec.Meta(ge=0)]
    limit: Annotated[int, msgspec.Meta(ge=1)]
    unit: Literal["tokens", "characters"] = "tokens"
    of: Literal["last", "all"] = "last"
    low: float = -1.0
    high: float = 0.0

    def __post_init__(self) -> None:
        if self.free >= self.limit:
            raise ValueError(f"free ({self.free}) has to be under limit ({self.limit})")

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """The penalty; EvaluationError where the length is not known."""
        length = self._length(subject)
        share = min(max((length - self.free) / (self.limit - self.free), 0.0), 1.0)
        return Verdict({self.reward: self.high + (self.low - self.high) * share}, {"length": length, "unit": self.unit})

    def _length(self, run: BatchTrajectory) -> int:
        steps = run.steps if self.of == "all" else run.steps[-1:]
        total = 0
        for step in steps:
            message = step.response_message
            if self.unit == "characters":
                length = None if message is None else len(message.text) + len(message.reasoning or "")
            else:
                length = step.response_length if step.response_ids is None else len(step.response_ids)
            if length is None:
                raise EvaluationError(f"{self.name}: step {step.step_id} has no {self.unit}")
            total += length
        if not steps:
            raise EvaluationError(f"{self.name}: trajectory {run.trajectory.trajectory_id} has no steps")
        return total
