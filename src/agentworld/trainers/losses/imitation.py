"""Supervised fine-tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def imitation_loss(logprobs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Cross entropy: - sum_i w_i log p(token_i)."""
    return -(logprobs * weights).sum()
