"""The losses, each a formula over the trained tokens of a micro-batch.

All take flat float32 tensors over the N trained tokens: `logprobs` (with gradient), `old` (recorded), `advantages`, and
`weights`, which carry the aggregation, so that a loss is a weighted sum (see minibatches.token_weights).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class PolicyLoss(NamedTuple):
    """`loss`: a scalar with gradient. `clipped`: weighted share of tokens whose gradient the clip removed. `kl`: the
    estimate (r - 1) - log r of KL(old || new) (Schulman 2020, "Approximating KL divergence", k3), weighted mean.
    """

    loss: torch.Tensor
    clipped: float
    kl: float


def imitation_loss(logprobs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Cross entropy: - sum_i w_i log p(token_i)."""
    return -(logprobs * weights).sum()


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
    surrogate = (ratio * advantages).minimum(bounded * advantages)
    loss = -(surrogate * weights).sum()
    detached = ratio.detach()
    total = weights.sum().clamp_min(1e-12)
    gone = (detached * advantages > bounded.detach() * advantages).to(weights.dtype)
    clipped = float((gone * weights).sum() / total)
    kl = float((((detached - 1.0) - detached.log()) * weights).sum() / total)
    return PolicyLoss(loss, clipped, kl)


def token_logprobs(model: Any, ids: torch.Tensor, selected: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    """log p(ids[b, t] | ids[b, :t]) at the selected positions, float32 [N], in the order of `selected`.

    `ids` int64 [B, L], right-padded; `selected` bool [B, L], its first column False; `temperatures` float32 [B] divides
    the logits. With right padding and a causal model no attention mask is needed. Logits are computed at the selected
    positions only.
    """
    import torch

    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    chosen = selected[:, 1:]
    logits = model.get_output_embeddings()(hidden[chosen]).float()
    rows = chosen.nonzero()[:, 0]
    logits = logits / temperatures[rows, None]
    targets = ids[:, 1:][chosen]
    return torch.log_softmax(logits, dim=-1).gather(1, targets[:, None])[:, 0]
