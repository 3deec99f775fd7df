"""Means with 95% intervals over tasks and seeds. Only numpy.

What is averaged is a number for each pair of a seed and a held-out task: how much the task's outcome changed. Every
seed does the same tasks, so seeds and tasks are crossed, and both are drawn from more of their kind. With x[s, i] of S
seeds and n tasks, and

    A = n sum_s (mean_s - mean)^2 / (S - 1)
    B = S sum_i (mean_i - mean)^2 / (n - 1)
    E = sum_si (x[s, i] - mean_s - mean_i + mean)^2 / ((S - 1) (n - 1))

the variance of the mean is estimated by V = (A + B - E) / (S n), that of the two-way random model with one observation
a cell (Searle, Casella, McCulloch 1992, Variance Components, chapter 4), and the interval is mean +- t sqrt(V), t with
Satterthwaite's degrees of freedom (1946, doi:10.2307/3002019). As A and B alone each estimate less than A + B - E does,
it is never taken to be less than either; then the degrees of freedom are those of the larger one. A single seed has the
t interval over its tasks (Student 1908), which says nothing of other seeds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """`mean`, and the bounds of its interval; nan where there are too few numbers for one."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 where all of it is above 0, -1 where it is below, 0 where it holds 0 or there is none."""
        return int(self.low > 0) - int(self.high < 0)


def paired_interval(changes: npt.ArrayLike) -> Interval:
    """Of the mean of `changes` [seeds, tasks] or [tasks]; see above."""
    x = np.atleast_2d(np.asarray(changes, dtype=np.float64))
    seeds, tasks = x.shape
    mean = float(x.mean())
    if tasks < 2:
        return Interval(mean, math.nan, math.nan)
    if seeds == 1:
        return _interval(mean, float(x.var(ddof=1)) / tasks, tasks - 1)
    by_seed, by_task = x.mean(axis=1, keepdims=True), x.mean(axis=0, keepdims=True)
    a = tasks * float(((by_seed - mean) ** 2).sum()) / (seeds - 1)
    b = seeds * float(((by_task - mean) ** 2).sum()) / (tasks - 1)
    rest = (seeds - 1) * (tasks - 1)
    e = float(((x - by_seed - by_task + mean) ** 2).sum()) / rest
    whole, freedom = a + b - e, 0.0
    if whole > max(a, b):
        freedom = whole**2 / (a**2 / (seeds - 1) + b**2 / (tasks - 1) + e**2 / rest)
        freedom = max(freedom, min(seeds, tasks) - 1)
    elif a >= b:
        whole, freedom = a, seeds - 1
    else:
        whole, freedom = b, tasks - 1
    return _interval(mean, whole / (seeds * tasks), freedom)


def _interval(mean: float, variance: float, freedom: float) -> Interval:
    width = t_quantile((1 + CONFIDENCE) / 2, freedom) * math.sqrt(variance)
    return Interval(mean, mean - width, mean + width)


def t_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t for a probability from 0.5 on, below 1; `freedom` of 1 or more, also broken."""
    low, high = 0.0, 1.0
    while _t_distribution(high, freedom) < probability:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2
        if _t_distribution(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_distribution(value: float, freedom: float) -> float:
    """P(T <= value), value >= 0: with t = sqrt(freedom) tan(angle) the density is that of cos(angle)^(freedom - 1)."""
    edge = math.atan(value / math.sqrt(freedom))
    angles = 0.5 * edge * (_NODES + 1)
    area = 0.5 * edge * float((_WEIGHTS * np.cos(angles) ** (freedom - 1)).sum())
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(math.pi)
    return 0.5 + math.exp(log_scale) * area


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
