"""Advantages from rewards of rollouts of the same task. Pure numpy.

Sources: group-relative advantages, Shao et al. 2024 (arXiv:2402.03300), section 4.1; without the division by the
standard deviation, which weighs easy and hard tasks up, Liu et al. 2025 (arXiv:2503.20783), section 3.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError

FloatArray = npt.NDArray[np.float64]
EPSILON = 1e-6


def group_relative(
    rewards: Sequence[float] | FloatArray, groups: Sequence[Hashable], *, divide_by_std: bool = True
) -> FloatArray:
    """A_i = (r_i - mean of its group) / (std of its group + 1e-6), or without the division.

    `rewards`: one value a rollout, shape [n], finite. `groups`: the group of each, length n. The standard deviation is
    the population's. A group whose rewards are all equal, so also one of a single rollout, has advantages of exactly 0.
    Returns float64 of shape [n].
    """
    values = np.asarray(rewards, dtype=np.float64)
    if values.ndim != 1 or len(values) != len(groups):
        raise InvalidRequestError(f"{values.shape} rewards do not go with {len(groups)} groups", path="rewards")
    if not np.isfinite(values).all():
        raise InvalidRequestError("rewards must be finite", path="rewards", hint="Leave out rollouts without a reward")
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    advantages = np.zeros(len(values))
    for indices in members.values():
        own = values[indices]
        if np.all(own == own[0]):
            continue
        centred = own - own.mean()
        advantages[indices] = centred / (own.std() + EPSILON) if divide_by_std else centred
    return advantages


def equal_groups(values: Sequence[float], groups: Sequence[Hashable]) -> set[Hashable]:
    """The groups whose values are all equal, so that they teach a group-relative method nothing."""
    first: dict[Hashable, float] = {}
    varied: set[Hashable] = set()
    for value, group in zip(values, groups, strict=True):
        if first.setdefault(group, value) != value:
            varied.add(group)
    return set(first) - varied
