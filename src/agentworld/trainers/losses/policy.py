"""Policy gradients, token by token: REINFORCE and the clipped surrogate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class PolicyLoss(NamedTuple):
    """`loss`: a scalar with gradient. `clipped` bool [N]: tokens whose gradient the clip removed. `kl` [N]: the
    estimate (r - 1) - log r of KL(old || new) (Schulman 2020, "Approximating KL divergence", k3). Both without
    gradient.
    """

    loss: torch.Tensor
    clipped: torch.Tensor
    kl: torch.Tensor


def reinforce_loss(logprobs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """- sum_i w_i A_i log p_i: its gradient is that of Williams 1992, with a baseline in A (RLOO: Ahmadian et al. 2024,
    arXiv:2402.14740). For tokens that the present weights sampled.
    """
    return -(logprobs * advantages * weights).sum()


def clipped_policy_loss(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> PolicyLoss:
    """- sum_i w_i min(r_i A_i, clip(r_i, 1 - clip_low, 1 + clip_high) A_i) with r_i = exp(logprobs_i - old_i).

    PPO, Schulman et al. 2017 (arXiv:1707.06347), equation 7; separate bounds, DAPO, Yu et al. 2025 (arXiv:2503.14476).
    """
    ratio = (logprobs - old).exp()
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = -((ratio * advantages).minimum(bounded * advantages) * weights).sum()
    return PolicyLoss(loss, _clipped(ratio, bounded, advantages), policy_kl(logprobs, old))


def sequence_policy_loss(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    row: torch.Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> PolicyLoss:
    """- sum_i w_i min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i) with the ratio of the whole row that token i
    is of, s = exp(mean over its trained tokens of (logprobs - old)). `row` int64 [N].

    GSPO, Zheng et al. 2025 (arXiv:2507.18071), in the form of its equation 14: the value of s_i is the row's, its
    gradient is s times that of log p_i, so that advantages and weights may differ by token; with equal ones in a row
    and weights that sum to the row's, value and gradient are those of equation 5.
    """
    import torch

    rows = int(row.max()) + 1 if len(row) else 0
    moved = logprobs - old
    sums = torch.zeros(rows, dtype=moved.dtype, device=moved.device).index_add(0, row, moved.detach())
    counts = torch.bincount(row, minlength=rows).clamp_min(1)
    whole = (sums / counts)[row].exp()
    ratio = whole * (logprobs - logprobs.detach()).exp()
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = -((ratio * advantages).minimum(bounded * advantages) * weights).sum()
    return PolicyLoss(loss, _clipped(ratio, bounded, advantages), policy_kl(logprobs, old))


def policy_kl(logprobs: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """k3 of KL(old || new) for each token, [N], without gradient."""
    moved = (logprobs - old).detach()
    return moved.exp() - 1.0 - moved


def _clipped(ratio: torch.Tensor, bounded: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    return ratio.detach() * advantages > bounded.detach() * advantages
