"""What the losses are computed from: flat tensors over a micro-batch's trained tokens, however it was forwarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """N trained tokens of R rows that make U units, row after row.

    `logprobs` [N], with gradient. `weights` [N] carry the aggregation, so that a loss is a weighted sum and
    micro-batches of an update add up. `old` [N]: under the policy that sampled. `advantages` [N]. `reference`,
    `teacher` [N]: under those models. `top` [N, k], with gradient, and `teacher_top` [N, k]: of the ids that the
    teacher found likeliest, NaN where it named fewer. `taught` [N]: 1 where the teacher sampled itself, else 0.
    `entropies` [N], with gradient, where asked for. `row` int64 [N]: the row of each token. `unit` int64 [R] and
    `preferred` bool [R]: which pair a row is of, and whether of its preferred side. `unit_weight`: of each unit in a
    loss over units. `divergence`: the estimate of KL(policy || reference) for losses of units by themselves. `values`
    [N], with gradient, where there is a critic: of the state that a token was drawn from; `old_values` [N]: those that
    advantages were made from; `returns` [N]: what they should have been.
    """

    logprobs: torch.Tensor
    weights: torch.Tensor
    old: torch.Tensor
    advantages: torch.Tensor
    row: torch.Tensor
    unit: torch.Tensor
    preferred: torch.Tensor
    unit_weight: float
    reference: torch.Tensor | None = None
    teacher: torch.Tensor | None = None
    top: torch.Tensor | None = None
    teacher_top: torch.Tensor | None = None
    taught: torch.Tensor | None = None
    entropies: torch.Tensor | None = None
    divergence: float = 0.0
    values: torch.Tensor | None = None
    old_values: torch.Tensor | None = None
    returns: torch.Tensor | None = None


class Loss(NamedTuple):
    """`value`: a scalar with gradient. `figures`: sums over the micro-batch's tokens by name, and `of_units` over its
    units, for means over an update.
    """

    value: torch.Tensor
    figures: dict[str, float]
    of_units: dict[str, float]
