"""The calibration report agrees with formulas written out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError
from agentworld.rewards.calibration import calibrate, report_lines

HUMAN = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
JUDGE = [0.9, 0.6, 0.4, 0.7, 0.2, 0.1, 0.8, 0.3]


def test_a_small_case_by_hand():
    criteria = {"greets": ([True, True, False], [True, False, False]), "always": ([True, True], [True, True])}
    report = calibrate(JUDGE, HUMAN, criteria=criteria)
    overall = report.overall
    assert (overall.true_positives, overall.false_positives) == (3, 1)
    assert (overall.false_negatives, overall.true_negatives) == (1, 3)
    assert (overall.count, overall.accuracy, overall.kappa) == (8, 0.75, 0.5)
    assert report.bias == pytest.approx(0.0)
    assert report.criteria["greets"].kappa == pytest.approx(0.4)
    assert (report.criteria["always"].accuracy, report.criteria["always"].kappa) == (1.0, None)
    lines = report_lines(report)
    assert "accuracy 0.750, kappa 0.500" in lines[0]
    assert any(line.startswith("always: accuracy 1.000, kappa undefined") for line in lines)


def naive_pearson(one, other):
    if len(set(one)) == 1 or len(set(other)) == 1:
        return None
    mean_one, mean_other = math.fsum(one) / len(one), math.fsum(other) / len(other)
    top = math.fsum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    bottom = math.sqrt(math.fsum((a - mean_one) ** 2 for a in one) * math.fsum((b - mean_other) ** 2 for b in other))
    return top / bottom


def naive_ranks(values):
    return [
        (sum(other < value for other in values) + 1 + sum(other <= value for other in values)) / 2 for value in values
    ]


def naive_kappa(ours, theirs):
    count = len(ours)
    observed = sum(a == b for a, b in zip(ours, theirs, strict=True)) / count
    chance = sum((ours.count(each) / count) * (theirs.count(each) / count) for each in (True, False))
    return None if chance == 1 else (observed - chance) / (1 - chance)


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=40))
def test_it_agrees_with_the_formulas(pairs):
    ours, theirs = [a / 10 for a, _ in pairs], [b / 10 for _, b in pairs]
    report = calibrate(ours, theirs)
    for found, expected in (
        (report.pearson, naive_pearson(ours, theirs)),
        (report.spearman, naive_pearson(naive_ranks(ours), naive_ranks(theirs))),
        (report.overall.kappa, naive_kappa([a >= 0.5 for a in ours], [b >= 0.5 for b in theirs])),
    ):
        assert (found is None) == (expected is None)
        assert found is None or found == pytest.approx(expected, abs=1e-9)
    assert report.mean_absolute_error == pytest.approx(
        sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / len(pairs)
    )


@pytest.mark.parametrize(
    ("judged", "human", "complaint"),
    [
        ([1.0], [1.0, 0.0], "do not go together"),
        ([], [], "do not go together"),
        ([math.nan], [1.0], "no finite number"),
    ],
)
def test_lists_that_do_not_go_together(judged, human, complaint):
    with pytest.raises(InvalidRequestError, match=complaint):
        calibrate(judged, human)
