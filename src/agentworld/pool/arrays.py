"""Steps as arrays, for whoever computes on many of them: no lists, no messages, no records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.forest import TokenArray


@dataclass(frozen=True, slots=True)
class StepArrays:
    """The whole sequence of one step.

    `ids`: prompt, then reply; uint32, read-only, and often a view of a longer sequence of its trajectory, so copy what
    is to be kept for long. `prompt_length`: how many of them are the prompt. `mask`: uint8, one for each id of the
    reply, 1 where the policy sampled it; None where it sampled all. `logprobs`: float32, one for each id of the reply,
    NaN where there is none; None where the step has none.
    """

    step_id: str
    trajectory_id: str
    prompt_length: int
    ids: TokenArray
    mask: npt.NDArray[np.uint8] | None
    logprobs: npt.NDArray[np.float32] | None


def check_selection(step_ids: Sequence[str] | None, others: Sequence[str | None]) -> None:
    """InvalidRequestError where steps are named and something else is asked for too."""
    if step_ids is not None and any(other is not None for other in others):
        raise InvalidRequestError(
            "step_ids go with nothing else", path="step_ids", hint="Leave out trajectory_id, where and channel"
        )


def frozen(ids: TokenArray) -> TokenArray:
    """The array, which can no longer be written to: other steps may share it."""
    ids.flags.writeable = False
    return ids
