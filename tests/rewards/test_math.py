"""Mathematical answers: the word of math-verify, within a time."""

import pytest
from math_verify import parse, verify

from agentworld.rewards import EvaluationError, checked
from agentworld.rewards.registry import make_evaluator
from tests.rewards.runs import run_of

# (reference, reply, whether it is right)
CASES = [
    ("1/2", r"so $\frac{1}{2}$", True),
    ("0.5", r"\boxed{\frac{1}{2}}", True),
    (r"$\frac{1}{2}$", "the answer is 0.5", True),
    ("12", "It is 12.", True),
    ("12", "It is 13.", False),
    (r"$\sqrt{8}$", r"$2\sqrt{2}$", True),
    (r"$\sqrt{8}$", r"$3\sqrt{2}$", False),
    (r"$x^2+2x+1$", r"$(x+1)^2$", True),
    (r"$x^2+2x+1$", r"$(x-1)^2$", False),
    (r"$\{1,2,3\}$", r"$\{3,2,1\}$", True),
    (r"$(1,2)$", r"$(2,1)$", False),
    (r"$[0,1)$", r"$[0,1]$", False),
    ("50%", r"$50\%$", True),
    (r"$\pi$", "3", False),
]


def judged(reference, reply, **settings):
    evaluator = make_evaluator({"kind": "math", "reference": reference, **settings}, "test")
    return checked(evaluator, run_of(reply))["t"].values["reward"]


@pytest.mark.parametrize(("reference", "reply", "right"), CASES)
def test_answers(reference, reply, right):
    assert judged(reference, reply) == right


@pytest.mark.parametrize(("reference", "reply", "right"), CASES)
def test_it_agrees_with_math_verify(reference, reply, right):
    assert judged(reference, reply) == verify(parse(reference), parse(reply))


def test_a_bare_latex_reference_counts():
    assert judged(r"\frac{1}{2}", "0.5") == 1


def test_one_of_several_references_suffices():
    assert judged(["3", "4"], "4") == 1


def test_a_reply_without_mathematics_is_wrong_and_such_a_reference_is_no_judgement():
    assert judged("4", "I do not know") == 0
    with pytest.raises(EvaluationError, match="reads nothing in the reference"):
        judged("none", "4")


def test_an_expression_that_takes_for_ever_is_a_failed_evaluation():
    with pytest.raises(EvaluationError, match=r"did not end within 1 s"):
        judged("1", r"$9^{9^{9^{9}}}$" + r" $\boxed{(10^{10})!}$", seconds=1.0)
    assert judged("4", "4") == 1
