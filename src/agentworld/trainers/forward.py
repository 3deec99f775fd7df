"""Log-probabilities of a micro-batch's trained tokens, row after row, from padded rows or from their token tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentworld.merge import tree_scores
from agentworld.merge.heads import head_of
from agentworld.merge.scores import label_scores
from agentworld.trainers.minibatches import trained
from agentworld.trainers.parts import Part
from agentworld.trainers.rows import Row

if TYPE_CHECKING:
    import torch


class Scores(NamedTuple):
    """`logprobs` [N] in the model's type, and at least float32; `entropies` [N] where asked for."""

    logprobs: torch.Tensor
    entropies: torch.Tensor | None


def part_scores(model: Any, part: Part, *, entropies: bool = False) -> Scores:
    """Of every trained token, log p(ids[t] | ids[:t]) with the logits divided by the row's temperature."""
    if part.tree is None:
        return padded_scores(model, part.rows, entropies=entropies)
    tree = part.tree
    nodes = tree.index[np.concatenate([trained(row) for row in part.rows])]
    needed = np.zeros(len(tree.tokens), dtype=bool)
    needed[nodes] = True
    heats = np.empty(len(tree.tokens))
    heats[tree.index] = np.concatenate([np.full(len(row), row.temperature) for row in part.rows])
    found = tree_scores(model, tree, needed, temperatures=heats, entropies=entropies)
    return Scores(found.on_paths(nodes), found.entropies_on_paths(nodes) if entropies else None)


def padded_scores(model: Any, rows: Sequence[Row], *, entropies: bool = False) -> Scores:
    """The same from rows that are padded on the right, which needs no mask with causal attention. Logits are made where
    something is trained only.
    """
    import torch

    device = next(model.parameters()).device
    ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    chosen = np.zeros(ids.shape, dtype=bool)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row.ids
        chosen[number, : len(row)] = trained(row)
    hidden = model.get_decoder()(input_ids=torch.from_numpy(ids).to(device), use_cache=False).last_hidden_state
    states = hidden[:, :-1][torch.from_numpy(chosen[:, 1:]).to(device)]
    heats = np.repeat([row.temperature for row in rows], chosen.sum(axis=1))
    places = np.arange(len(states))
    logprobs, found = label_scores(head_of(model), states, heats, places, ids[chosen], entropies=entropies)
    return Scores(logprobs, found)
