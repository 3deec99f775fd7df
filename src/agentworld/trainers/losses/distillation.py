"""Distillation from the log-probabilities that a teacher gave the sampled tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Divergence = Literal["reverse_kl", "forward_kl"]


def reverse_kl_loss(
    logprobs: torch.Tensor, old: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """- sum_i w_i r_i (teacher_i - log p_i), r_i = exp(logprobs_i - old_i), where the gradient takes log p_i as given.

    An estimate of KL(student || teacher) at each prefix from the one token that was sampled there, with importance
    weights for what older weights sampled: its gradient E[r (log p - teacher) grad log p] is that of the divergence.
    On-policy distillation, Agarwal et al. 2023 (arXiv:2306.13649); as a policy gradient, Gu et al. 2023
    (arXiv:2306.08543).
    """
    ratio = (logprobs - old).exp()
    return -(ratio * (teacher - logprobs.detach()) * weights).sum()


def forward_kl_loss(
    logprobs: torch.Tensor, old: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """sum_i w_i q_i (teacher_i - log p_i), q_i = exp(teacher_i - old_i).

    An estimate of KL(teacher || student) at each prefix from the token sampled there: q_i corrects for who sampled it.
    For what the teacher sampled itself q is 1 and the gradient that of imitation (Hinton et al. 2015,
    arXiv:1503.02531). Where the teacher finds likely what was sampled as unlikely, q is large.
    """
    return ((teacher - old).exp() * (teacher - logprobs) * weights).sum()
