"""Steps that are good or bad each by itself: process reward models."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class StepwiseLoss(NamedTuple):
    """`loss`: a scalar with gradient. `right` bool [N]: steps that are found what they are, without gradient."""

    loss: torch.Tensor
    right: torch.Tensor


def stepwise_loss(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> StepwiseLoss:
    """- sum_i w_i (y_i log sigmoid(z_i) + (1 - y_i) log sigmoid(-z_i)): cross entropy over the ends of N steps.

    Process reward models, Lightman et al. 2023 (arXiv:2305.20050), section 2.6: whether a step is right is predicted
    after its last token. `logits` [N]: z, which is the difference of the two logits of a classifier of two classes.
    `labels` [N]: y, 1 for good steps and 0 for bad ones.
    """
    import torch

    likely = torch.nn.functional.logsigmoid
    found = labels * likely(logits) + (1.0 - labels) * likely(-logits)
    return StepwiseLoss(-(found * weights).sum(), (logits.detach() > 0) == (labels > 0.5))
