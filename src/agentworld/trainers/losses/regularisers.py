"""What may be added to a policy's loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def reference_penalty(logprobs: torch.Tensor, reference: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """sum_i w_i (exp(d_i) - 1 - d_i), d_i = reference_i - logprobs_i: an estimate of KL(policy || reference).

    GRPO, Shao et al. 2024 (arXiv:2402.03300), equation 4.
    """
    moved = reference - logprobs
    return ((moved.exp() - 1.0 - moved) * weights).sum()


def entropy_bonus(entropies: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """- sum_i w_i H_i, H_i the entropy of the distribution that token i was drawn from (Williams & Peng 1991)."""
    return -(entropies * weights).sum()
