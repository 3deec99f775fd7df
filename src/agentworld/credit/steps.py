"""How the credit of a trajectory is spread over its steps. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from agentworld.credit.returns import discounted_returns
from agentworld.credit.trees import Ends, FloatArray, Fork, StepTree, chain
from agentworld.errors import InvalidRequestError

Spread = Literal["uniform", "last", "discounted"]


def spread(
    credit: float,
    steps: int | StepTree,
    how: str = "uniform",
    *,
    gamma: float = 1.0,
    fork: Fork = "mean_over_leaves",
    ends: Ends = "every_leaf",
    last: int = -1,
) -> FloatArray:
    """The credit of each of n steps, float64 [n]; `steps`: how many, of a chain, or their tree.

    uniform: each step has the whole credit, as when one advantage holds for every token of the trajectory. last: the
    ends have it (see `StepTree.ends`), the others 0. discounted: gamma ** (steps to the end) of it, as a return.
    """
    if isinstance(steps, int):
        if steps < 0:
            raise InvalidRequestError(f"a trajectory cannot have {steps} steps", path="steps")
        steps = StepTree(chain(steps))
    if how == "uniform":
        return np.full(len(steps), credit, dtype=np.float64)
    if how not in ("last", "discounted"):
        raise InvalidRequestError(
            f"{how!r} is no way to spread credit", path="spread", hint="Use uniform, last or discounted"
        )
    values = np.zeros(len(steps))
    values[steps.ends(ends, last)] = credit
    return values if how == "last" else discounted_returns(steps, values, gamma=gamma, fork=fork)


def to_tokens(credits: Sequence[float] | FloatArray, lengths: Sequence[int]) -> FloatArray:
    """Each step's credit repeated over its reply's tokens: shape [sum of lengths]."""
    return np.repeat(np.asarray(credits, dtype=np.float64), np.asarray(lengths, dtype=np.int64))
