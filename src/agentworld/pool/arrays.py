"""Steps as arrays, for whoever computes on many of them: no lists, no messages, no records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.forest import TokenArray
from agentworld.records import Step


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


def steps_as_arrays(steps: Iterable[Step]) -> Iterator[StepArrays]:
    """Records that hold their ids and log-probabilities, as arrays; those without ids are left out."""
    for step in steps:
        parts = [np.asarray(ids, dtype=np.uint32) for ids in (step.prompt_ids, step.response_ids) if ids is not None]
        if not any(len(part) for part in parts):
            continue
        mask = None if step.response_mask is None else np.asarray(step.response_mask, dtype=np.uint8)
        given = step.response_logprobs
        yield StepArrays(
            step_id=step.step_id,
            trajectory_id=step.trajectory_id,
            prompt_length=0 if step.prompt_ids is None else len(step.prompt_ids),
            ids=frozen(np.concatenate(parts)),
            mask=None if mask is None or mask.all() else mask,
            logprobs=None if given is None else np.asarray(given, dtype=np.float32),
        )


def frozen(ids: TokenArray) -> TokenArray:
    """The array, which can no longer be written to: other steps may share it."""
    ids.flags.writeable = False
    return ids
