"""Preferences between two sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class PreferenceLoss(NamedTuple):
    """`loss`: a scalar with gradient. `margins` [U]: how much more the preferred side is rewarded, without gradient."""

    loss: torch.Tensor
    margins: torch.Tensor


def preference_loss(
    logprobs: torch.Tensor,
    reference: torch.Tensor,
    row: torch.Tensor,
    unit: torch.Tensor,
    preferred: torch.Tensor,
    *,
    weight: float,
    beta: float = 0.1,
) -> PreferenceLoss:
    """- weight * sum_u log sigmoid(beta (d_preferred - d_other)), d = sum over a side's tokens of log p - reference.

    DPO, Rafailov et al. 2023 (arXiv:2305.18290), equation 7. `row` int64 [N], `unit` int64 [R] and `preferred` bool [R]
    as in `Terms`; a side may be several rows, such as branches of one trajectory.
    """
    import torch

    signs = torch.where(preferred, 1.0, -1.0).to(logprobs.dtype)[row]
    units = int(unit.max()) + 1 if len(unit) else 0
    margins = torch.zeros(units, dtype=logprobs.dtype, device=logprobs.device)
    margins = beta * margins.index_add(0, unit[row], (logprobs - reference) * signs)
    loss = -weight * torch.nn.functional.logsigmoid(margins).sum()
    return PreferenceLoss(loss, margins.detach())
