"""Branches of a trajectory as token sequences in which each sampled token stands once to be trained on.

The token forest decides: a step goes on a sequence where its prompt begins with all of it, id for id. Where the prompt
breaks off, a new sequence begins whose prompt is not trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from agentworld.records import Step

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Chosen = Callable[[Step, Ids, Ids], Mask]
"""Of a step, its prompt and its reply: which tokens of the reply are trained on."""


@dataclass(slots=True)
class TokenRow:
    """`ids` [L] and `mask` [L], true where the token was sampled and is to be trained on."""

    ids: Ids
    mask: Mask
    steps: list[Step] = field(default_factory=list)


def sampled(step: Step, prompt: Ids, reply: Ids) -> Mask:
    """The tokens that the policy sampled: all of the reply where nothing else is said."""
    if step.response_mask is None:
        return np.ones(len(reply), dtype=np.bool_)
    return np.asarray(step.response_mask, dtype=np.int64) > 0


def has_ids(step: Step) -> bool:
    """Whether a step has the ids of its prompt and of its reply."""
    return bool(step.prompt_ids) and bool(step.response_ids)


def sequences(steps: Sequence[Step], chosen: Chosen, *, each_step: bool = False) -> list[TokenRow]:
    """The sequences of the steps that have ids; one a step where `each_step`."""
    found: list[TokenRow] = []
    for step in steps:
        if not step.prompt_ids or not step.response_ids:
            continue
        prompt = np.asarray(step.prompt_ids, dtype=np.int64)
        reply = np.asarray(step.response_ids, dtype=np.int64)
        mask = chosen(step, prompt, reply)
        row = None if each_step else _longest_prefix(found, prompt)
        if row is None:
            row = TokenRow(np.zeros(0, np.int64), np.zeros(0, np.bool_))
            found.append(row)
        between = len(prompt) - len(row.ids)
        row.mask = np.concatenate([row.mask, np.zeros(between, np.bool_), mask])
        row.ids = np.concatenate([prompt, reply])
        row.steps.append(step)
    return found


def _longest_prefix(found: Sequence[TokenRow], prompt: Ids) -> TokenRow | None:
    longest: TokenRow | None = None
    for row in found:
        length = len(row.ids)
        longer = length <= len(prompt) and (longest is None or length > len(longest.ids))
        if longer and np.array_equal(prompt[:length], row.ids):
            longest = row
    return longest
