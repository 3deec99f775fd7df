"""Branches of a trajectory as token sequences in which each sampled token stands once to be trained on.

The token forest decides: a step goes on a sequence where its prompt begins with all of it, id for id. Where the prompt
breaks off, a new sequence begins whose prompt is not trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from agentworld.pool.arrays import StepArrays
from agentworld.records import Step

Ids = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
Chosen = Callable[[Step, StepArrays], Mask]
"""Of a step and its arrays: which tokens of the reply are trained on."""


@dataclass(slots=True)
class TokenRow:
    """`ids` [L] and `mask` [L], true where the token was sampled and is to be trained on."""

    ids: Ids
    mask: Mask
    steps: list[Step] = field(default_factory=list)


def sampled(step: Step, arrays: StepArrays) -> Mask:
    """The tokens that the policy sampled: all of the reply where nothing else is said."""
    if arrays.mask is None:
        return np.ones(len(arrays.ids) - arrays.prompt_length, dtype=np.bool_)
    return arrays.mask > 0


def has_ids(arrays: StepArrays | None) -> bool:
    """Whether a step has the ids of its prompt and of its reply."""
    return arrays is not None and 0 < arrays.prompt_length < len(arrays.ids)


def each_sequence(steps: Iterable[Step], arrays: Mapping[str, StepArrays], chosen: Chosen) -> Iterator[TokenRow]:
    """One sequence a step, of those that have ids, as they are asked for."""
    for step in steps:
        own = arrays.get(step.step_id)
        if own is not None and has_ids(own):
            yield TokenRow(own.ids, _whole_mask(own, chosen(step, own)), [step])


def sequences(steps: Iterable[Step], arrays: Mapping[str, StepArrays], chosen: Chosen) -> list[TokenRow]:
    """The sequences of the steps that have ids."""
    found: list[TokenRow] = []
    for step in steps:
        own = arrays.get(step.step_id)
        if own is None or not has_ids(own):
            continue
        mask = _whole_mask(own, chosen(step, own))
        row = _longest_prefix(found, own.ids[: own.prompt_length])
        if row is None:
            found.append(TokenRow(own.ids, mask, [step]))
            continue
        mask[: len(row.mask)] = row.mask
        row.ids, row.mask = own.ids, mask
        row.steps.append(step)
    return found


def _whole_mask(arrays: StepArrays, chosen: Mask) -> Mask:
    """The mask of a sequence whose prompt is not trained on."""
    return np.concatenate([np.zeros(arrays.prompt_length, np.bool_), chosen])


def _longest_prefix(found: Sequence[TokenRow], prompt: Ids) -> TokenRow | None:
    longest: TokenRow | None = None
    for row in found:
        length = len(row.ids)
        longer = length <= len(prompt) and (longest is None or length > len(longest.ids))
        if longer and np.array_equal(prompt[:length], row.ids):
            longest = row
    return longest
