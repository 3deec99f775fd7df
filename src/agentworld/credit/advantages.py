"""Advantages from rewards of rollouts of the same task. Pure numpy.

Sources: group-relative advantages, Shao et al. 2024 (arXiv:2402.03300), section 4.1; without the division by the
standard deviation, which weighs easy and hard tasks up, Liu et al. 2025 (arXiv:2503.20783), section 3; leave-one-out
(RLOO), Ahmadian et al. 2024 (arXiv:2402.14740); the greedy rollout's reward as the baseline (ReMax), Li et
al. 2023 (arXiv:2310.10505); normalised over the batch (REINFORCE++), Hu et al. 2025 (arXiv:2501.03262).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError

FloatArray = npt.NDArray[np.float64]
EPSILON = 1e-6
_LARGE = 1e100  # from which squares of many may overflow


def group_relative(
    rewards: Sequence[float] | FloatArray, groups: Sequence[Hashable], *, divide_by_std: bool = True
) -> FloatArray:
    """A_i = (r_i - mean of its group) / (std of its group + 1e-6), or without the division.

    `rewards`: one value a rollout, shape [n], finite. `groups`: the group of each, length n. The standard deviation is
    the population's. A group whose rewards are all equal, so also one of a single rollout, has advantages of exactly 0.
    Returns float64 of shape [n].
    """
    values = _checked(rewards, groups)
    advantages = np.zeros(len(values))
    for indices in _members(groups):
        own = values[indices]
        if np.all(own == own[0]):
            continue
        unit = _unit(own)
        scaled = own / unit
        centred = scaled - scaled.mean()
        advantages[indices] = centred / (scaled.std() + EPSILON / unit) if divide_by_std else _times(centred, unit)
    return _finite(advantages)


def leave_one_out(rewards: Sequence[float] | FloatArray, groups: Sequence[Hashable]) -> FloatArray:
    """A_i = r_i - mean of the others of its group; shapes as for `group_relative`.

    A group whose rewards are all equal, so also one of a single rollout, has advantages of exactly 0.
    """
    values = _checked(rewards, groups)
    advantages = np.zeros(len(values))
    for indices in _members(groups):
        own = values[indices]
        if np.all(own == own[0]):
            continue
        unit = _unit(own)
        scaled = own / unit
        advantages[indices] = _times((scaled - scaled.mean()) * (len(own) / (len(own) - 1)), unit)
    return _finite(advantages)


def greedy_relative(rewards: Sequence[float] | FloatArray, baselines: Sequence[float] | FloatArray) -> FloatArray:
    """A_i = r_i - b_i, where b_i is the reward of the greedy rollout of the same task; shapes [n]."""
    values = _checked(rewards, baselines)
    with np.errstate(over="ignore"):
        return _finite(values - _checked(baselines, values.tolist()))


def batch_relative(rewards: Sequence[float] | FloatArray, groups: Sequence[Hashable] | None = None) -> FloatArray:
    """A_i = (x_i - mean of all x) / (std of all x + 1e-6), with x = r.

    Where `groups` is given, x = r - mean of its group. The statistics are those of the whole batch, each rollout once;
    where all x are equal, advantages are exactly 0.
    """
    values = _checked(rewards, rewards)
    if groups is not None:
        values = group_relative(values, groups, divide_by_std=False)
    return group_relative(values, [None] * len(values))


def equal_groups(values: Sequence[float], groups: Sequence[Hashable]) -> set[Hashable]:
    """The groups whose values are all equal, so that they teach a group-relative method nothing."""
    first: dict[Hashable, float] = {}
    varied: set[Hashable] = set()
    for value, group in zip(values, groups, strict=True):
        if first.setdefault(group, value) != value:
            varied.add(group)
    return set(first) - varied


def _checked(rewards: Sequence[float] | FloatArray, beside: Sequence[Hashable] | FloatArray) -> FloatArray:
    values = np.asarray(rewards, dtype=np.float64)
    if values.ndim != 1 or len(values) != len(beside):
        raise InvalidRequestError(f"{values.shape} rewards do not go with {len(beside)} groups", path="rewards")
    if not np.isfinite(values).all():
        raise InvalidRequestError("rewards must be finite", path="rewards", hint="Leave out rollouts without a reward")
    return values


def _unit(values: FloatArray) -> float:
    """What these are divided by so that no sum or square of them overflows: 1, or of very large ones a power of 2."""
    largest = float(np.abs(values).max())
    return 1.0 if largest < _LARGE else math.ldexp(1.0, math.frexp(largest)[1] - 1)


def _times(values: FloatArray, unit: float) -> FloatArray:
    with np.errstate(over="ignore"):
        return values * unit


def _finite(advantages: FloatArray) -> FloatArray:
    if not np.isfinite(advantages).all():
        raise InvalidRequestError(
            "rewards differ by more than a float can hold", path="rewards", hint="Scale them, to -1 to 1 for instance"
        )
    return advantages


def _members(groups: Sequence[Hashable]) -> list[list[int]]:
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    return list(members.values())
