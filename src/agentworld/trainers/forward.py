"""One forward over a micro-batch, of padded rows or of their token tree, and what is read off its hidden states.

A state is computed once, however many rows go through it, and logits are made where something is trained only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.merge import plan_attention
from agentworld.merge.attention import tree_hidden
from agentworld.merge.heads import head_of
from agentworld.merge.scores import label_scores
from agentworld.trainers.minibatches import trained
from agentworld.trainers.parts import Part

if TYPE_CHECKING:
    import torch


class States(NamedTuple):
    """`hidden` [R, width]: last hidden states, with gradient. `rows` int64 [N]: which of them each of the N marked
    tokens has, row after row.
    """

    hidden: torch.Tensor
    rows: npt.NDArray[np.int64]


class Scores(NamedTuple):
    """Of the N trained tokens of a micro-batch, in the model's type and at least float32: `logprobs` [N]; `entropies`
    [N] where asked for; `top` [N, k] of the ids that were named for each of them, where some were.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor | None
    top: torch.Tensor | None = None


def states_at(model: Any, part: Part, masks: Sequence[npt.NDArray[np.bool_]]) -> States:
    """The states after the tokens of the part's rows that `masks` (bool [L] each) mark."""
    import torch

    if part.tree is not None:
        places, rows = np.unique(part.tree.index[np.concatenate(masks)], return_inverse=True)
        hidden = tree_hidden(model, plan_attention(part.tree))
        return States(hidden[torch.from_numpy(places.astype(np.int64)).to(hidden.device)], rows.astype(np.int64))
    device = next(model.parameters()).device
    # Padded on the right, which needs no mask with causal attention.
    ids = np.zeros((len(part.rows), max(map(len, part.rows))), dtype=np.int64)
    chosen = np.zeros(ids.shape, dtype=bool)
    for number, (row, mask) in enumerate(zip(part.rows, masks, strict=True)):
        ids[number, : len(row)] = row.ids
        chosen[number, : len(row)] = mask
    found = model.get_decoder()(input_ids=torch.from_numpy(ids).to(device), use_cache=False).last_hidden_state
    hidden = found[torch.from_numpy(chosen).to(device)]
    return States(hidden, np.arange(len(hidden), dtype=np.int64))


def states_before(model: Any, part: Part) -> States:
    """The states that the trained tokens of the part's rows are drawn from: those after the tokens before them."""
    return states_at(model, part, [np.append(trained(row)[1:], False) for row in part.rows])


def token_scores(
    model: Any, part: Part, states: States, *, entropies: bool = False, also: npt.NDArray[np.int64] | None = None
) -> Scores:
    """Of every trained token, log p(ids[t] | ids[:t]) with the logits divided by the row's temperature, and of `also`
    int64 [N, k] in the place of each, from the same row of logits. `states`: those before them.
    """
    masks = [trained(row) for row in part.rows]
    labels = np.concatenate([row.ids[mask] for row, mask in zip(part.rows, masks, strict=True)])
    heats = np.empty(len(states.hidden))
    # Rows of other temperatures share no state (see row_tree).
    heats[states.rows] = np.repeat([row.temperature for row in part.rows], [int(mask.sum()) for mask in masks])
    if also is None:
        found, spread = label_scores(head_of(model), states.hidden, heats, states.rows, labels, entropies=entropies)
        return Scores(found, spread)
    count, width = also.shape
    rows = np.concatenate([states.rows, np.repeat(states.rows, width)])
    found, spread = label_scores(
        head_of(model), states.hidden, heats, rows, np.concatenate([labels, also.reshape(-1)]), entropies=entropies
    )
    return Scores(found[:count], None if spread is None else spread[:count], found[count:].reshape(count, width))


def part_scores(
    model: Any, part: Part, *, entropies: bool = False, also: npt.NDArray[np.int64] | None = None
) -> Scores:
    """`token_scores` from a forward of their own."""
    return token_scores(model, part, states_before(model, part), entropies=entropies, also=also)
