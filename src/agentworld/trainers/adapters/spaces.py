"""Which log-probabilities a trainer can work with, and at which temperature. Spaces are never mixed or guessed."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.records import Sampling, Step
from agentworld.trainers.rows import behaviour_logprobs, recomputable_temperature

# recomputable: of the logits, or of the logits divided by a temperature, which the row says. raw: at temperature 1.
# recorded: in whatever space they are, for trainers that only compare them with others of the same engine.
# none: not read.
Logprobs = Literal["recomputable", "raw", "recorded", "none"]


def temperature_of(step: Step, wanted: Logprobs) -> float:
    """What the logits are divided by to come into the space of the step's log-probabilities.

    With recorded and none the temperature that it was sampled at, 1 where it says none. InvalidRequestError where the
    space is not `wanted`.
    """
    if wanted in ("none", "recorded"):
        sampled = (step.sampling or Sampling()).temperature
        return 1.0 if sampled is None else sampled
    temperature = recomputable_temperature(step)
    if wanted == "raw" and temperature != 1.0:
        raise InvalidRequestError(
            f"step {step.step_id} has log-probabilities at temperature {temperature:g}, and raw ones are wanted",
            path="logprobs",
            hint="Sample at temperature 1, or have the engine report raw log-probabilities",
        )
    return temperature


def logprobs_of(step: Step, mask: npt.NDArray[np.bool_], wanted: Logprobs) -> npt.NDArray[np.float32] | None:
    """The step's log-probabilities float32 [reply], 0 where `mask` bool [reply] is false; None where none are wanted.

    InvalidRequestError where a sampled token has none, or they do not go with the ids.
    """
    if wanted == "none":
        return None
    given = step.response_logprobs
    if given is not None and len(given) != len(mask):
        raise InvalidRequestError(
            f"step {step.step_id} has {len(given)} log-probabilities for {len(mask)} ids", path="logprobs"
        )
    return behaviour_logprobs(step, mask)
