"""Mathematical answers, compared by `math-verify`: 1/2 is 0.5 is \\frac{1}{2}."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import BatchTrajectory
from agentworld.rewards.answers import extract_answer
from agentworld.rewards.isolation.children import children
from agentworld.rewards.protocol import EvaluationError, Verdict, last_answer
from agentworld.rewards.rules.answer import AnswerRule, shown

_MEMORY_MB = 2048


class Math(AnswerRule, frozen=True, kw_only=True):
    """1 where math-verify finds the answer equal to the reference, else 0.

    It finds the answer in the reply by itself, so `answer` is normally left as it is. `precision`: digits behind the
    point that are compared; `strict`: variables are told apart by name. Needs the extra `rewards`. It runs in a child
    process, as some expressions take sympy for ever: over `seconds` is a failed evaluation.
    """

    precision: Annotated[int, msgspec.Meta(ge=0, le=50)] = 6
    strict: bool = True
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0

    def __post_init__(self) -> None:
        if find_spec("math_verify") is None:
            raise ConfigError(
                "the evaluator math needs math-verify",
                path="kind",
                hint='Install it: pip install "agentworld[rewards]"',
            )

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """1 or 0, with what was read of both."""
        said, wanted = extract_answer(last_answer(subject), self.answer), self.wanted(subject)
        choices = [str(each) for each in (wanted if isinstance(wanted, list) else [wanted])]
        if said is None:
            return Verdict({self.reward: 0.0}, {"answer": None, "reference": shown(wanted)})
        payload = {"answer": said, "references": choices, "precision": self.precision, "strict": self.strict}
        try:
            result = children(_MEMORY_MB).call(f"{__name__}:compare", payload, seconds=self.seconds)
        except EvaluationError as error:
            raise EvaluationError(f"{self.name}: math-verify: {error.message}", hint=error.hint) from None
        if result["unread"]:
            raise EvaluationError(f"{self.name}: math-verify reads nothing in the reference {shown(wanted)!r}")
        return Verdict({self.reward: float(result["equal"])}, {"answer": result["read"], "reference": shown(wanted)})


def prepare() -> None:
    """Load math-verify and with it sympy; runs in a child, before its time is counted."""
    import math_verify  # noqa: F401


def compare(payload: dict[str, Any]) -> dict[str, Any]:
    """math-verify's word on the answer and each reference; runs in a child, whose end is its time-out."""
    import logging

    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    golds = [parse(_as_math(each), parsing_timeout=None) for each in payload["references"]]
    said = parse(payload["answer"], parsing_timeout=None)
    equal = any(
        verify(
            gold,
            said,
            float_rounding=payload["precision"],
            strict=payload["strict"],
            timeout_seconds=None,
        )
        for gold in golds
        if gold
    )
    return {"equal": equal, "read": [str(each)[:500] for each in said[:2]], "unread": not any(golds)}


def _as_math(reference: str) -> str:
    """The reference as math-verify finds it: LaTeX only counts within its delimiters."""
    delimited = any(mark in reference for mark in ("$", "\\(", "\\[", "\\boxed", "\\begin"))
    return f"${reference}$" if "\\" in reference and not delimited else reference
