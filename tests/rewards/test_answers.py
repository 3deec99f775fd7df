"""Where the answer stands, and how it is compared."""

import pytest

from agentworld.errors import ConfigError
from agentworld.rewards import extract_answer
from agentworld.rewards.answers import comparison


@pytest.mark.parametrize(
    ("text", "whole", "after"),
    [
        (None, None, None),
        ("  \n", None, None),
        (" 42\n", "42", None),
        ("Answer: 42", "Answer: 42", "42"),
        ("ANSWER:42\nthanks", "ANSWER:42\nthanks", "42"),
        ("Answer: 1\nno, Answer: 2 .", "Answer: 1\nno, Answer: 2 .", "2 ."),
        ("Answer:\n42", "Answer:\n42", None),
    ],
)
def test_extraction(text, whole, after):
    assert extract_answer(text) == whole
    assert extract_answer(text, "after_answer") == after


@pytest.mark.parametrize(
    ("place", "text", "answer"),
    [
        ("boxed", r"so \boxed{1} and \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("boxed", r"\boxed{4} then \boxed{never closed", "4"),
        ("boxed", "no box", None),
        ("tag", "<answer>1</answer> no: <answer> 2 </answer>", "2"),
        ("tag", "<answer>1", None),
        ("code", "```python\nprint(1)\n```\nor\n```\nprint(2)\n```\n", "print(2)"),
        ("code", "~~~\n```\n~~~", "```"),
        ("code", "```python\nprint(1)", None),
        ("last_number", "from 1,000.5 and -3, so 12,", "12"),
        ("last_number", "none", None),
        ("last_number", "3 of 1.5e-4.", "1.5e-4"),
        ("last_number", "1e3e", "1e3"),
        ("last_number", "100, or 5 % of it", "5 %"),
        ("last_number", "of 1,2,3", "3"),
        ("last_number", "3/4", "4"),
    ],
)
def test_other_places(place, text, answer):
    assert extract_answer(text, place) == answer


def test_many_boxes_that_never_close_take_linear_time():
    assert extract_answer("\\boxed{" * 20_000, "boxed") is None


@pytest.mark.parametrize(
    ("name", "answer", "reference", "value"),
    [
        ("exact", " a b ", "a b", 1.0),
        ("exact", "A b", "a b", 0.0),
        ("exact", "7", 7, 1.0),
        ("contains", "It is PARIS.", "Paris", 1.0),
        ("contains", "It is Rome.", "Paris", 0.0),
        ("numeric", "1,000.50", "+1000.5", 1.0),
        ("numeric", "7", 7, 1.0),
        ("numeric", "seven", 7, 0.0),
        ("numeric", "1e3", 1000, 1.0),
        ("numeric", "5%", 0.05, 1.0),
        ("numeric", "7 and 8", 7, 0.0),
        ("numeric", "nan", "nan", 0.0),
        ("numeric", "Infinity", "Infinity", 0.0),
        (f"{__name__}:close", "7", 8, 0.5),
    ],
)
def test_comparisons(name, answer, reference, value):
    assert comparison(name)(answer, reference) == value


def close(answer, reference):
    """A comparison of the user's: half marks for one off, and nonsense for nothing."""
    return {0: 1, 1: 0.5}.get(abs(int(answer) - reference), 7)


def test_a_function_that_leaves_the_range_is_named():
    with pytest.raises(ConfigError, match=r"close' returned 7\.0"):
        comparison(f"{__name__}:close")("1", 5)
