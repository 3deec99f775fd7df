"""What a critic is trained with, beside a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class ValueLoss(NamedTuple):
    """`loss`: a scalar with gradient. `clipped` bool [N]: tokens whose gradient the clip removed. `errors` [N]: squared
    ones, without the clip. Both without gradient.
    """

    loss: torch.Tensor
    clipped: torch.Tensor
    errors: torch.Tensor


def value_loss(
    values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, weights: torch.Tensor, *, clip: float = 0.2
) -> ValueLoss:
    """sum_i w_i / 2 max((V_i - R_i)^2, (clip(V_i, old_i - clip, old_i + clip) - R_i)^2).

    The squared error of PPO, Schulman et al. 2017 (arXiv:1707.06347), equation 9, against the returns R = A + old of
    generalised advantage estimation (arXiv:1506.02438), with the values kept near those that the advantages were made
    from, Engstrom et al. 2020 (arXiv:2005.12729), section 3.
    """
    errors = (values - returns) ** 2
    bounded = (old + (values - old).clamp(-clip, clip) - returns) ** 2
    loss = 0.5 * (errors.maximum(bounded) * weights).sum()
    return ValueLoss(loss, (bounded > errors).detach(), errors.detach())
