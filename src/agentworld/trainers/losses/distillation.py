"""Distillation from the log-probabilities that a teacher gave the sampled tokens, or the likeliest in their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Divergence = Literal["reverse_kl", "forward_kl", "top_reverse_kl", "top_forward_kl"]
LEAST = -60.0  # of an id that was not named: e^-60 counts as nothing
TOP: tuple[Divergence, ...] = ("top_reverse_kl", "top_forward_kl")
"""Those that compare more than the sampled token."""


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


def top_forward_kl_loss(top: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """sum_i w_i KL(teacher || student) at token i, over the k ids that the teacher found likeliest there and all others
    as one more outcome: sum_k q_k (log q_k - log p_k) + q_rest (log q_rest - log p_rest).

    `top` [N, k]: log p of these ids, with gradient; `teacher` [N, k]: log q, NaN where it named fewer. No estimate from
    a sample, and at most the divergence over the whole vocabulary, as outcomes that are put together tell less (Cover &
    Thomas 2006, theorem 2.7.1). Distillation from what the teacher found likely, Hinton et al. 2015 (arXiv:1503.02531).
    """
    student, mine, theirs, rest = _outcomes(top, teacher)
    likely = theirs.exp()
    kept = 1.0 - likely.sum(dim=-1)
    terms = (likely * (theirs - student)).sum(dim=-1) + kept.clamp_min(0.0) * (rest - mine)
    return (terms * weights).sum()


def top_reverse_kl_loss(top: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """sum_i w_i KL(student || teacher) at token i, over the same outcomes as `top_forward_kl_loss`:
    sum_k p_k (log p_k - log q_k) + p_rest (log p_rest - log q_rest).

    On-policy distillation, Agarwal et al. 2023 (arXiv:2306.13649), with the teacher's k likeliest ids.
    """
    student, mine, theirs, rest = _outcomes(top, teacher)
    terms = (student.exp() * (student - theirs)).sum(dim=-1) + mine.exp() * (mine - rest)
    return (terms * weights).sum()


def _outcomes(
    top: torch.Tensor, teacher: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Student's and teacher's log-probabilities of the named ids and of all others together: student [N, k], student's
    others [N], teacher [N, k], teacher's others [N]. Ids that were not named count as nothing on both sides.
    """
    import torch

    missing = torch.isnan(teacher)
    least = torch.full_like(teacher, LEAST)
    student, theirs = torch.where(missing, least, top), torch.where(missing, least, teacher)
    return student, _others(student), theirs, _others(theirs)


def _others(logprobs: torch.Tensor) -> torch.Tensor:
    """log(1 - sum of p), at least of what a float tells from nothing."""
    smallest = 1e-12 if logprobs.element_size() == 8 else 1e-6
    return (1.0 - logprobs.exp().sum(dim=-1)).clamp_min(smallest).log()
