"""From rewards of steps to returns and advantages over time, on trees of steps. Pure numpy.

Everything here runs from the leaves up. Where a step has several continuations, `fork` says what it sees of them
(see `agentworld.credit.trees`). With `mean_over_leaves`, the default, each result is the mean of what the usual formula
gives on each path from the step to a leaf; on a chain all conventions are the usual formula.

Sources: generalised advantage estimation, Schulman et al. 2015 (arXiv:1506.02438), equation 16; ends that were cut off
are not terminal, Pardo et al. 2017 (arXiv:1712.00378); progress as a dense reward, Setlur et al. 2024
(arXiv:2410.08146), whose differences leave the total unchanged, Ng et al. 1999, "Policy invariance under
reward transformations", theorem 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentworld.credit.trees import FloatArray, Fork, IntArray, StepTree
from agentworld.errors import InvalidRequestError


def discounted_returns(
    tree: StepTree, rewards: Sequence[float] | FloatArray, *, gamma: float = 1.0, fork: Fork = "mean_over_leaves"
) -> FloatArray:
    """G_s = r_s + gamma * G_next, float64 [n]; `rewards` [n] come at the end of each step."""
    return gae(tree, rewards, np.zeros(len(tree)), gamma=gamma, lam=1.0, fork=fork)


def gae(
    tree: StepTree,
    rewards: Sequence[float] | FloatArray,
    values: Sequence[float] | FloatArray,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Sequence[float] | FloatArray | None = None,
    fork: Fork = "mean_over_leaves",
) -> FloatArray:
    """A_s = delta_s + gamma * lam * A_next with delta_s = r_s + gamma * V_next - V_s, float64 [n].

    `rewards`, `values` [n]: of each step the reward at its end and the value of the state before it. `bootstrap` [n]:
    of leaves that were cut off the value of the state after them, 0 of those that ended; where it is None all ended.
    The targets of the values are A + V.
    """
    ones = np.ones(len(tree), dtype=np.int64)
    single = [np.asarray([value]) for value in _row(values, tree, "values")]
    found = gae_tokens(tree, rewards, single, ones, gamma=gamma, lam=lam, bootstrap=bootstrap, fork=fork)
    return np.concatenate(found) if found else np.zeros(0)


def discounted_returns_tokens(
    tree: StepTree,
    rewards: Sequence[float] | FloatArray,
    lengths: Sequence[int] | IntArray,
    *,
    gamma: float = 1.0,
    fork: Fork = "mean_over_leaves",
) -> list[FloatArray]:
    """As `discounted_returns` with a token as the unit of time: one array [lengths[s]] a step.

    A step's reward comes at its last sampled token; a step without any takes no time, and its reward goes to what is
    before it.
    """
    nothing = [np.zeros(length) for length in lengths]
    return gae_tokens(tree, rewards, nothing, lengths, gamma=gamma, lam=1.0, fork=fork)


def gae_tokens(
    tree: StepTree,
    rewards: Sequence[float] | FloatArray,
    values: Sequence[FloatArray],
    lengths: Sequence[int] | IntArray,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Sequence[float] | FloatArray | None = None,
    fork: Fork = "mean_over_leaves",
) -> list[FloatArray]:
    """As `gae` with a token as the unit of time: one array [lengths[s]] a step.

    `values`: of each step an array [lengths[s]], the value before each sampled token.
    """
    earned = _row(rewards, tree, "rewards").tolist()
    after = [0.0] * len(tree) if bootstrap is None else _row(bootstrap, tree, "bootstrap").tolist()
    if len(lengths) != len(tree) or [len(own) for own in values] != [int(length) for length in lengths]:
        raise InvalidRequestError("each step needs one value a sampled token", path="values")
    advantages: list[FloatArray] = [np.zeros(0)] * len(tree)
    # gamma * (V + lam * A) of each step's first token, which is all that what is before it needs to know:
    # A = r + gamma * (V_next + lam * A_next) - V.
    ahead = [0.0] * len(tree)
    for step in reversed(tree.order):
        following = tree.combine(ahead, step, fork) if tree.children[step] else gamma * after[step]
        following += earned[step]
        own = np.asarray(values[step], dtype=np.float64).tolist()
        found = [0.0] * len(own)
        for token in range(len(own) - 1, -1, -1):
            found[token] = following - own[token]
            following = gamma * (own[token] + lam * found[token])
        ahead[step] = following
        advantages[step] = np.asarray(found, dtype=np.float64)
    return advantages


def progress_differences(
    tree: StepTree, values: Sequence[float] | FloatArray, *, initial: float | Sequence[float] | FloatArray = 0.0
) -> FloatArray:
    """c_s = V_s - V_parent(s), float64 [n]; a root's parent is worth `initial` (one, or [n] of which roots are read).

    `values` [n]: how well things stand after each step. Along each path the differences sum to V_leaf - initial. A
    shared step has the same difference on every path.
    """
    after = _row(values, tree, "values")
    start = np.broadcast_to(np.asarray(initial, dtype=np.float64), after.shape)
    before = np.where(tree.parents >= 0, after[tree.parents], start) if len(tree) else after
    return np.asarray(after - before, dtype=np.float64)


def total_return(tree: StepTree, rewards: Sequence[float] | FloatArray, fork: Fork = "mean_over_leaves") -> float:
    """The sum of rewards along a path from a root to a leaf, undiscounted; over roots the mean by their leaves."""
    return tree.mean_over_roots(discounted_returns(tree, rewards, gamma=1.0, fork=fork))


def _row(values: Sequence[float] | FloatArray, tree: StepTree, name: str) -> FloatArray:
    row = np.asarray(values, dtype=np.float64)
    if row.shape != (len(tree),):
        raise InvalidRequestError(f"{name} of shape {row.shape} do not go with {len(tree)} steps", path=name)
    if not np.isfinite(row).all():
        raise InvalidRequestError(f"{name} must be finite", path=name, hint="Absent is not zero: leave the step out")
    return row
