"""Intervals against scipy, against the textbook's mean squares, and against data whose truth is known."""

import math

import numpy as np
import pytest
from experiments.statistics import paired_interval, t_quantile
from scipy import stats


def test_quantiles_are_those_of_scipy() -> None:
    for freedom in (1, 1.5, 2, 2.7, 5, 30, 199, 398):
        for probability in (0.75, 0.975, 0.995):
            assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-9)


def test_one_seed_is_the_t_interval_of_a_paired_test() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.integers(0, 2, (2, 200)).astype(float)
    found = paired_interval(after - before)
    expected = stats.ttest_rel(after, before).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert found.mean == pytest.approx(after.mean() - before.mean())


def test_seeds_and_tasks_are_crossed() -> None:
    """Mean squares by sums over every cell, as in an analysis of variance by hand."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3, 1)) * 0.3 + rng.normal(size=(1, 40)) + rng.normal(size=(3, 40))
    seeds, tasks = x.shape
    mean = x.mean()
    a = sum((x[s].mean() - mean) ** 2 for s in range(seeds) for _ in range(tasks)) / (seeds - 1)
    b = sum((x[:, i].mean() - mean) ** 2 for _ in range(seeds) for i in range(tasks)) / (tasks - 1)
    total = sum((x[s, i] - mean) ** 2 for s in range(seeds) for i in range(tasks))
    e = (total - a * (seeds - 1) - b * (tasks - 1)) / ((seeds - 1) * (tasks - 1))
    assert a + b - e > max(a, b)
    parts = a**2 / (seeds - 1) + b**2 / (tasks - 1) + e**2 / ((seeds - 1) * (tasks - 1))
    freedom = max((a + b - e) ** 2 / parts, 2)
    width = stats.t.ppf(0.975, freedom) * math.sqrt((a + b - e) / (seeds * tasks))
    found = paired_interval(x)
    assert (found.low, found.high) == pytest.approx((mean - width, mean + width), rel=1e-9)


@pytest.mark.parametrize(("by_seed", "by_task"), [(0.0, 0.0), (0.3, 0.0), (0.0, 1.0), (0.3, 1.0)])
def test_intervals_hold_the_truth_as_often_as_they_say(by_seed: float, by_task: float) -> None:
    """Of 400 draws, 95% up to chance (three standard errors are 0.033) or, being careful, more."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        x = 0.2 + by_seed * rng.normal(size=(3, 1)) + by_task * rng.normal(size=(1, 60)) + rng.normal(size=(3, 60))
        found = paired_interval(x)
        held += found.low <= 0.2 <= found.high
    assert held / 400 > 0.95 - 0.033


def test_what_cannot_vary_has_no_width_and_one_task_no_interval() -> None:
    assert paired_interval(np.ones((3, 10))) == (1.0, 1.0, 1.0)
    assert paired_interval(np.zeros((3, 10))).sign == 0
    assert paired_interval(np.full((2, 10), -0.5)).sign == -1
    assert math.isnan(paired_interval([[1.0]]).low)
