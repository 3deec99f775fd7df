"""Rules that compare the answer with a reference: exactly, but for wording's surface, and as a number."""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import msgspec

from agentworld.records import BatchTrajectory
from agentworld.rewards.answers import AnswerPlace, extract_answer
from agentworld.rewards.numbers import read_written
from agentworld.rewards.protocol import EvaluationError, EvaluatorKind, Verdict, last_answer

Tolerance = Annotated[float, msgspec.Meta(ge=0)]
_SHOWN = 500
_ARTICLES = frozenset(("a", "an", "the"))


def shown(value: Any) -> Any:
    """`value` for the details: a long text is cut."""
    return f"{value[:_SHOWN]}..." if isinstance(value, str) and len(value) > _SHOWN else value


class AnswerRule(EvaluatorKind, frozen=True, kw_only=True):
    """What rules have in common that compare the answer in the last reply with a reference.

    `answer`: where in the reply the answer stands. `reference`: what is right, in place of the task's;
    `reference_field`: where in the task it stands. Where it is a list, one suffices. No answer is a wrong answer; no
    reference is a failed evaluation.
    """

    revision: ClassVar[int] = 2
    answer: AnswerPlace = "whole"
    reference: Any = None
    reference_field: str = "reference"

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """1 where the answer is right, else 0."""
        said, wanted = extract_answer(last_answer(subject), self.answer), self.wanted(subject)
        details = {"answer": shown(said), "reference": shown(wanted)}
        if said is None:
            return Verdict({self.reward: 0.0}, {**details, "why": f"no answer ({self.answer})"})
        choices = wanted if isinstance(wanted, list) else [wanted]
        return Verdict({self.reward: float(any(self.agrees(said, each) for each in choices))}, details)

    def wanted(self, run: BatchTrajectory) -> Any:
        """The reference; EvaluationError where there is none."""
        found = self.reference if self.reference is not None else (run.trajectory.task or {}).get(self.reference_field)
        if found is None or found == []:
            raise EvaluationError(
                f"{self.name}: the task of {run.trajectory.trajectory_id} has no {self.reference_field}",
                path=f"task.{self.reference_field}",
                hint="Give the task a reference, or set `reference` or `reference_field`",
            )
        return found

    @abstractmethod
    def agrees(self, answer: str, reference: Any) -> bool:
        """Whether the answer is right; each rule says how."""


class Exact(AnswerRule, frozen=True, kw_only=True):
    """The same text, but for surrounding white space."""

    def agrees(self, answer: str, reference: Any) -> bool:
        """Character for character."""
        return answer.strip() == str(reference).strip()


class Normalised(AnswerRule, frozen=True, kw_only=True):
    """The same words. `contained`: the reference's words in one piece within the answer's suffice."""

    ignore_case: bool = True
    ignore_punctuation: bool = True
    ignore_articles: bool = True
    contained: bool = False

    def agrees(self, answer: str, reference: Any) -> bool:
        """Word for word."""
        said, wanted = self._words(answer), self._words(str(reference))
        if not wanted:
            raise EvaluationError(f"{self.name}: nothing is left of the reference {shown(reference)!r}")
        if self.contained:
            return f" {' '.join(wanted)} " in f" {' '.join(said)} "
        return said == wanted

    def _words(self, text: str) -> list[str]:
        text = unicodedata.normalize("NFKC", text)
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = "".join(" " if unicodedata.category(each)[0] in "PS" else each for each in text)
        words = text.split()
        return [word for word in words if word.casefold() not in _ARTICLES] if self.ignore_articles else words


class Numeric(AnswerRule, frozen=True, kw_only=True):
    """The same number. `tolerance`: how far apart they may be; `relative`: the same as a share of the reference.

    Commas between groups of digits, a currency before and a unit after the number do not matter; 1.5e-4 and 3/4 are
    numbers. Where one of the two alone is a percentage, 5% is 0.05 and also 5, with the unit left out.
    """

    tolerance: Tolerance = 0.0
    relative: Tolerance = 0.0

    def agrees(self, answer: str, reference: Any) -> bool:
        """By exact fractions, so that 0.1 + 0.2 is 0.3."""
        wanted = read_written(str(reference))
        if wanted is None or isinstance(reference, bool):
            raise EvaluationError(f"{self.name}: the reference {shown(reference)!r} is no number")
        said = read_written(answer)
        return said is not None and said.agrees(wanted, Fraction(str(self.tolerance)), Fraction(str(self.relative)))
