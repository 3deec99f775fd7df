"""Log-probabilities of more than the sampled token: at each trained token also of k ids that somebody else named."""

from __future__ import annotations

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


class TopScores(NamedTuple):
    """`logprobs` [N] of the trained tokens of a micro-batch, `top` [N, k] of the ids named for each of them."""

    logprobs: torch.Tensor
    top: torch.Tensor


def part_top_scores(model: Any, part: Part, ids: npt.NDArray[np.int64]) -> TopScores:
    """As `part_scores`, and of `ids` int64 [N, k] in the place of each token, from the same row of logits."""
    import torch

    masks = [trained(row) for row in part.rows]
    labels = np.concatenate([row.ids[mask] for row, mask in zip(part.rows, masks, strict=True)])
    heats = np.repeat([row.temperature for row in part.rows], [int(mask.sum()) for mask in masks]).astype(np.float64)
    if part.tree is None:
        states, rows, heat = _padded_states(model, part, masks), np.arange(len(labels)), heats
    else:
        tree = part.tree
        parents = tree.parent[tree.index[np.concatenate(masks)]]
        places, rows = np.unique(parents, return_inverse=True)
        hidden = tree_hidden(model, plan_attention(tree))
        states = hidden[torch.from_numpy(places.astype(np.int64)).to(hidden.device)]
        heat = np.empty(len(places))
        heat[rows] = heats  # Rows of other temperatures share no token of the tree.
    count, width = ids.shape
    found, _ = label_scores(
        head_of(model),
        states,
        heat,
        np.concatenate([rows, np.repeat(rows, width)]),
        np.concatenate([labels, ids.reshape(-1)]),
    )
    return TopScores(found[:count], found[count:].reshape(count, width))


def _padded_states(model: Any, part: Part, masks: list[npt.NDArray[np.bool_]]) -> torch.Tensor:
    """The hidden states before the trained tokens of rows that are padded on the right, [N, width]."""
    import torch

    device = next(model.parameters()).device
    ids = np.zeros((len(part.rows), max(map(len, part.rows))), dtype=np.int64)
    chosen = np.zeros(ids.shape, dtype=bool)
    for number, (row, mask) in enumerate(zip(part.rows, masks, strict=True)):
        ids[number, : len(row)] = row.ids
        chosen[number, : len(row)] = mask
    hidden = model.get_decoder()(input_ids=torch.from_numpy(ids).to(device), use_cache=False).last_hidden_state
    states: torch.Tensor = hidden[:, :-1][torch.from_numpy(chosen[:, 1:]).to(device)]
    return states
