"""Log-probabilities and entropies of the tokens of a tree, each computed once, and per path by an index.

A token's log-probability comes from the hidden state of its parent, so a token with several children gives several, one
label each, of one row of logits. Logits are made for parents of tokens that a loss needs, in blocks of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.merge.attention import Way, tree_hidden
from agentworld.merge.heads import Head, head_of
from agentworld.merge.plan import plan_attention
from agentworld.merge.tree import TokenTree

if TYPE_CHECKING:
    import torch

LOGITS_AT_ONCE = 1 << 25  # numbers of a block of logits


class TreeScores(NamedTuple):
    """`logprobs` [E]: of the tokens of the tree that were asked for, in its order; `entropies` [E] of the distribution
    that each was drawn from, where asked for. `place` int64[U]: where a token is among them, -1 for those that are not.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor | None
    place: npt.NDArray[np.int64]

    def on_paths(self, nodes: npt.NDArray[np.integer]) -> torch.Tensor:
        """The log-probabilities of tokens of the tree, such as `tree.index[mask]` for those of a flat mask, [len]."""
        return self.logprobs[self._at(nodes)]

    def entropies_on_paths(self, nodes: npt.NDArray[np.integer]) -> torch.Tensor:
        """As `on_paths`, of entropies."""
        if self.entropies is None:
            raise InvalidRequestError("entropies were not asked for", path="entropies")
        return self.entropies[self._at(nodes)]

    def _at(self, nodes: npt.NDArray[np.integer]) -> torch.Tensor:
        import torch

        at = self.place[nodes]
        if len(at) and int(at.min()) < 0:
            raise InvalidRequestError("some of these tokens were not asked for", path="nodes")
        return torch.from_numpy(at).to(self.logprobs.device)


def tree_scores(
    model: Any,
    tree: TokenTree,
    needed: npt.NDArray[np.bool_],
    *,
    temperatures: npt.NDArray[np.floating] | None = None,
    entropies: bool = False,
    way: Way = "auto",
) -> TreeScores:
    """Log-probabilities, with gradient, of the tokens where `needed` bool[U] is true; a root has none.

    `temperatures` [U]: what the logits before each token are divided by, equal for children of one parent. Computed in
    the model's type, and at least in float32.
    """
    import torch

    wanted = np.flatnonzero(needed)
    if len(wanted) and np.any(tree.parent[wanted] < 0):
        raise InvalidRequestError("a sequence's first token has no log-probability", path="needed")
    hidden = tree_hidden(model, plan_attention(tree), way=way)
    rows, at = np.unique(tree.parent[wanted], return_inverse=True)
    heat = np.ones(len(rows)) if temperatures is None else _of_rows(temperatures[wanted], at, len(rows))
    place = np.full(len(tree.tokens), -1, dtype=np.int64)
    place[wanted] = np.arange(len(wanted))
    states = hidden[torch.from_numpy(rows.astype(np.int64)).to(hidden.device)]
    labels = tree.tokens[wanted].astype(np.int64)
    logprobs, found = label_scores(head_of(model), states, heat, at, labels, entropies=entropies)
    return TreeScores(logprobs, found, place)


def label_scores(
    head: Head,
    states: torch.Tensor,
    temperatures: npt.NDArray[np.floating],
    rows: npt.NDArray[np.integer],
    labels: npt.NDArray[np.integer],
    *,
    entropies: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities [E] of `labels` [E], each after one of the R hidden `states` [R, width] by `rows` [E], and the
    entropies [E] of their distributions. `temperatures` [R] divide the logits, which are made in blocks.
    """
    import torch

    device = states.device
    if not len(labels):
        nothing = states.to(torch.promote_types(states.dtype, torch.float32)).sum(dim=1)[:0]
        return nothing, nothing if entropies else None
    order = np.argsort(rows, kind="stable")
    ids = torch.from_numpy(labels[order]).to(device)
    at_sorted = rows[order]
    heats = torch.from_numpy(temperatures).to(device=device, dtype=torch.promote_types(states.dtype, torch.float32))
    block = max(1, LOGITS_AT_ONCE // head.vocabulary)
    logprobs, found = [], []
    for first in range(0, len(states), block):
        begin, end = np.searchsorted(at_sorted, [first, first + block])
        own = torch.from_numpy(at_sorted[begin:end] - first).to(device)
        given = (head, states[first : first + block], heats[first : first + block], own, ids[begin:end], entropies)
        if len(states) > block and torch.is_grad_enabled():
            from torch.utils.checkpoint import checkpoint

            # The logits of a block are made again for its gradient, so that one block's are held at a time.
            part, entropy = checkpoint(_block, *given, use_reentrant=False)
        else:
            part, entropy = _block(*given)
        logprobs.append(part)
        found.append(entropy)
    back = torch.from_numpy(np.argsort(order, kind="stable")).to(device)
    return torch.cat(logprobs)[back], torch.cat(found)[back] if entropies else None


def _block(
    head: Head, states: torch.Tensor, heats: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor, entropies: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one block of rows: log p of the labels, and the entropy - sum p log p of the row of each."""
    import torch

    logits = head(states)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / heats[:, None]
    total = torch.logsumexp(logits, dim=-1)
    logprobs = logits[rows, labels] - total[rows]
    if not entropies:
        return logprobs, logprobs.detach()
    mean = (torch.softmax(logits, dim=-1) * logits).sum(dim=-1)
    return logprobs, (total - mean)[rows]


def _of_rows(temperatures: npt.NDArray[np.floating], at: npt.NDArray[np.integer], rows: int) -> npt.NDArray[np.float64]:
    found = np.zeros(rows)
    found[at] = temperatures
    if np.any(found[at] != temperatures) or np.any(found <= 0):
        raise InvalidRequestError(
            "temperatures are over 0, and equal for tokens that follow one prefix",
            path="temperatures",
            hint="Build the tree with `distinct`, so that paths of other temperatures share nothing",
        )
    return found
