"""How the credit of a trajectory is spread over its steps. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError

FloatArray = npt.NDArray[np.float64]
StepCredit = Literal["uniform", "last"]


def spread(credit: float, steps: int, how: StepCredit = "uniform") -> FloatArray:
    """The credit of each of `steps` steps, shape [steps].

    uniform: each step has the whole credit, as when one advantage holds for every token of the trajectory. last: the
    last step has it, the others 0.
    """
    if steps < 0:
        raise InvalidRequestError(f"a trajectory cannot have {steps} steps", path="steps")
    if how == "uniform":
        return np.full(steps, credit, dtype=np.float64)
    if how == "last":
        values = np.zeros(steps)
        values[-1:] = credit
        return values
    raise InvalidRequestError(f"{how!r} is no way to spread credit", path="how", hint="Use uniform or last")


def to_tokens(credits: Sequence[float] | FloatArray, lengths: Sequence[int]) -> FloatArray:
    """Each step's credit repeated over its reply's tokens: shape [sum of lengths]."""
    return np.repeat(np.asarray(credits, dtype=np.float64), np.asarray(lengths, dtype=np.int64))
