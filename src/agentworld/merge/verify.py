"""Merged against flat, on a small batch of the user's own model and data, before anything is trained on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.errors import AgentWorldError, InvalidRequestError
from agentworld.merge.attention import Way
from agentworld.merge.models import check_model
from agentworld.merge.scores import tree_scores
from agentworld.merge.tree import Ids, build_tree

if TYPE_CHECKING:
    import torch

# By bits of the model's type: how far log-probabilities may differ, and gradients relative to the largest of a tensor.
# Sums in another order differ by some units of the last place of the largest term.
TOLERANCES = {64: (1e-9, 1e-8), 32: (1e-4, 1e-3), 16: (0.25, 0.25)}
MOST_TOKENS = 8_192
"""Flat tokens that are compared, at most: sequences behind them are left out."""


class MergeDiffersError(AgentWorldError):
    """Merging computes something else than the model does on these sequences."""

    code = "merge_differs"
    status = 500


class Verification(NamedTuple):
    """`sequences`, `tokens`: how much was compared, flat; `unique`: computed merged. `logprobs`: the largest
    difference, and `where` it is as (sequence, place); `gradients`: the largest relative one, and `parameter` that it
    is of. Both are held against `tolerances`.
    """

    sequences: int
    tokens: int
    unique: int
    logprobs: float
    where: tuple[int, int] | None
    gradients: float
    parameter: str | None
    tolerances: tuple[float, float]

    @property
    def holds(self) -> bool:
        """Whether both are within the tolerances."""
        return self.logprobs <= self.tolerances[0] and self.gradients <= self.tolerances[1]

    def line(self) -> str:
        """What was found, in a line."""
        parameter = f" ({self.parameter})" if self.parameter is not None else ""
        return (
            f"merged against flat on {self.sequences} sequences of {self.tokens:,} tokens, {self.unique:,} merged: "
            f"log-probabilities differ by {self.logprobs:.1e}, gradients by {self.gradients:.1e}{parameter}"
        )


def verify_merging(
    model: Any,
    sequences: Sequence[Ids] | Sequence[Sequence[int]],
    *,
    way: Way = "auto",
    tolerances: tuple[float, float] | None = None,
) -> Verification:
    """Compare log-probabilities, and gradients of their mean, of the merged and of the flat forward.

    The model's gradients are as before afterwards. MergeDiffersError names what differs by more than `tolerances`
    (absolute, relative), which depend on the model's type by default.
    """
    import torch

    check_model(model)
    chosen = _first(sequences)
    if not chosen:
        raise InvalidRequestError("no sequence has two tokens, so there is nothing to compare", path="sequences")
    tree = build_tree(chosen)
    own = np.concatenate([np.arange(len(each)) > 0 for each in chosen])
    nodes = tree.index[own]
    needed = np.zeros(len(tree.tokens), dtype=bool)
    needed[nodes] = True
    weights = [each for each in model.parameters() if each.requires_grad]
    bits = 16 if next(model.parameters()).element_size() == 2 else 8 * next(model.parameters()).element_size()
    merged = tree_scores(model, tree, needed, way=way).on_paths(nodes)
    flat = _flat(model, chosen)
    differences = (merged.detach() - flat.detach()).abs()
    farthest = int(differences.argmax())
    gradient, parameter = _gradients(model, weights, torch.autograd, merged.mean(), flat.mean())
    place = int(np.flatnonzero(own)[farthest])
    sequence = int(np.searchsorted(tree.offsets, place, side="right")) - 1
    found = Verification(
        sequences=len(chosen),
        tokens=len(tree.index),
        unique=len(tree.tokens),
        logprobs=float(differences[farthest]),
        where=(sequence, place - int(tree.offsets[sequence])),
        gradients=gradient,
        parameter=parameter,
        tolerances=TOLERANCES[bits] if tolerances is None else tolerances,
    )
    if not found.holds:
        raise MergeDiffersError(
            f"{found.line()}; allowed are {found.tolerances[0]:g} and {found.tolerances[1]:g}",
            path=f"sequences[{sequence}][{found.where[1] if found.where else 0}]",
            hint="Train this model unmerged: something in it looks at more than a token's own path",
        )
    return found


def _first(sequences: Sequence[Ids] | Sequence[Sequence[int]]) -> list[npt.NDArray[np.int64]]:
    chosen: list[npt.NDArray[np.int64]] = []
    tokens = 0
    for each in sequences:
        if len(each) < 2 or tokens + len(each) > MOST_TOKENS:
            continue
        chosen.append(np.asarray(each, dtype=np.int64))
        tokens += len(each)
    return chosen


def _flat(model: Any, sequences: Sequence[npt.NDArray[np.int64]]) -> torch.Tensor:
    """Log-probabilities of every token but the first of each sequence, a forward a sequence, as the model is."""
    import torch

    device = next(model.parameters()).device
    found = []
    for each in sequences:
        ids = torch.from_numpy(each).to(device)
        logits = model(input_ids=ids[None], use_cache=False).logits[0, :-1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        found.append(torch.log_softmax(logits, dim=-1).gather(1, ids[1:, None])[:, 0])
    return torch.cat(found)


def _gradients(
    model: Any, weights: Sequence[torch.Tensor], autograd: Any, merged: torch.Tensor, flat: torch.Tensor
) -> tuple[float, str | None]:
    """The largest difference of two losses' gradients relative to the largest of the tensor, and whose it is; infinite
    where one is no number. Where one side is all zero, the other counts relative to the largest gradient of all, as
    rounding alone may leave something there.
    """
    if not weights:
        return 0.0, None
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = autograd.grad(merged, weights, allow_unused=True)
    other = autograd.grad(flat, weights, allow_unused=True)
    largest = max((float(each.abs().max()) for each in (*own, *other) if each is not None), default=0.0)
    worst, whose = 0.0, None
    for parameter, one, two in zip(weights, own, other, strict=True):
        if one is None and two is None:
            continue
        if one is None or two is None:
            return float("inf"), names.get(id(parameter))
        gap, sides = float((one - two).abs().max()), (float(one.abs().max()), float(two.abs().max()))
        if not math.isfinite(gap):
            return float("inf"), names.get(id(parameter))
        scale = max(sides) if min(sides) > 1e-12 else largest
        difference = gap / scale if scale > 1e-12 else 0.0
        if difference > worst:
            worst, whose = difference, names.get(id(parameter))
    return worst, whose
