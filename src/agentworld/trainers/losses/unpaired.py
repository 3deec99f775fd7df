"""Sequences that are good or bad by themselves, without another to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class UnpairedLoss(NamedTuple):
    """`loss`: a scalar with gradient. `right` bool [U]: units that are beyond the divergence on the side that they
    should be on, without gradient.
    """

    loss: torch.Tensor
    right: torch.Tensor


def unpaired_loss(
    logprobs: torch.Tensor,
    reference: torch.Tensor,
    row: torch.Tensor,
    unit: torch.Tensor,
    desirable: torch.Tensor,
    *,
    divergence: float,
    weight: float,
    beta: float = 0.1,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> UnpairedLoss:
    """weight * sum_u l_u (1 - sigmoid(s_u beta (r_u - z))), r = sum over a unit's tokens of log p - reference.

    KTO, Ethayarajh et al. 2024 (arXiv:2402.01306), equations 7 and 8. s is 1 and l is `desirable_weight` where a unit
    is desirable, else -1 and `undesirable_weight`. z is `divergence`, at least 0: the estimate of KL(policy ||
    reference), without gradient (see `mismatched`). `row` int64 [N], `unit` int64 [R] and `desirable` bool [R] as in
    `Terms`; a unit may be several rows, such as branches of one trajectory, which are all of one side.
    """
    import torch

    units = int(unit.max()) + 1 if len(unit) else 0
    zeros = torch.zeros(units, dtype=logprobs.dtype, device=logprobs.device)
    rewards = zeros.index_add(0, unit[row], logprobs - reference)
    signs = zeros.index_copy(0, unit, torch.where(desirable, 1.0, -1.0).to(logprobs.dtype))
    factors = torch.where(signs > 0, zeros + desirable_weight, zeros + undesirable_weight)
    beyond = signs * (rewards - max(divergence, 0.0))
    loss = weight * (factors * (1.0 - torch.sigmoid(beta * beyond))).sum()
    return UnpairedLoss(loss, beyond.detach() > 0)
