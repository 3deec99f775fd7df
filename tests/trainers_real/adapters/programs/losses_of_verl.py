"""The reference trainer's losses beside verl's on one DataProto: values, and the gradient of every token; and returns
of generalised advantage estimation.
"""

import given
import torch
from verl.trainer.ppo.core_algos import (
    compute_gae_advantage_return,
    compute_policy_loss_gspo,
    compute_policy_loss_vanilla,
    compute_value_loss,
)
from verl.workers.config import ActorConfig

from agentworld.credit import StepTree, gae_tokens, loss_weights
from agentworld.trainers.losses.policy import clipped_policy_loss, sequence_policy_loss
from agentworld.trainers.losses.values import value_loss

# Of each method verl's function and aggregation, ours, and the clip, wide enough and narrow enough to be met.
METHODS = {
    "grpo": (compute_policy_loss_vanilla, "seq-mean-token-mean", "trajectory_mean", (0.2, 0.2)),
    "dapo": (compute_policy_loss_vanilla, "token-mean", "token_mean", (0.2, 0.28)),
    "gspo": (compute_policy_loss_gspo, "seq-mean-token-mean", "trajectory_mean", (0.02, 0.03)),
}


def both(data, name):
    theirs, mode, aggregation, (low, high) = METHODS[name]
    mask = data.batch["response_mask"].bool()
    old, advantages = data.batch["old_log_probs"].double(), data.batch["advantages"].double()
    torch.manual_seed(0)
    new = (old + 0.3 * torch.randn(mask.shape, dtype=torch.float64)).requires_grad_()
    config = ActorConfig(strategy="fsdp", rollout_n=2, ppo_mini_batch_size=4, ppo_micro_batch_size_per_gpu=4,
                         clip_ratio=low, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=1e9)  # fmt: skip
    loss, _ = theirs(old, new, advantages, mask.double(), loss_agg_mode=mode, config=config)
    (gradient,) = torch.autograd.grad(loss, new)
    counts = mask.sum(1).numpy()
    of_rows = torch.from_numpy(loss_weights(counts, counts, aggregation=aggregation))
    row = mask.nonzero()[:, 0]
    flat = (new[mask], old[mask], advantages[mask], of_rows[row])
    if name == "gspo":
        ours = sequence_policy_loss(*flat, row, clip_low=low, clip_high=high)
    else:
        ours = clipped_policy_loss(*flat, clip_low=low, clip_high=high)
    (own,) = torch.autograd.grad(ours.loss, new)
    return {
        "verl": loss.item(),
        "ours": ours.loss.item(),
        "apart": float((gradient - own).abs().max()),
        "moved": float(gradient.abs().max()),
        "clipped": int(ours.clipped.sum()),
        "tokens": len(row),
    }


def critic(data):
    """Returns and the critic's loss; what was put between the sampled tokens takes no time in either."""
    mask = data.batch["response_mask"].bool()
    torch.manual_seed(1)
    old = torch.randn(mask.shape, dtype=torch.float64) * mask
    rewards = torch.zeros_like(old)
    last = mask.shape[1] - 1 - mask.long().flip(1).argmax(1)
    rewards[torch.arange(len(mask)), last] = torch.linspace(-1.0, 1.0, len(mask), dtype=torch.float64)
    _, returns = compute_gae_advantage_return(rewards, old, mask.double(), gamma=0.95, lam=0.9)
    own = torch.zeros_like(returns)
    for row, (sampled, value, reward) in enumerate(zip(mask, old, rewards, strict=True)):
        known = value[sampled].numpy()
        (found,) = gae_tokens(StepTree([-1]), [float(reward.sum())], [known], [len(known)], gamma=0.95, lam=0.9)
        own[row, sampled] = torch.from_numpy(found + known)
    new = (old + 0.4 * torch.randn(mask.shape, dtype=torch.float64)).requires_grad_()
    loss, clipped = compute_value_loss(
        new, returns, old, mask.double(), cliprange_value=0.2, loss_agg_mode="token-mean"
    )
    (gradient,) = torch.autograd.grad(loss, new)
    counts = mask.sum(1).numpy()
    weights = torch.from_numpy(loss_weights(counts, counts, aggregation="token_mean"))[mask.nonzero()[:, 0]]
    ours = value_loss(new[mask], old[mask], own[mask], weights, clip=0.2)
    (mine,) = torch.autograd.grad(ours.loss, new)
    return {
        "verl": loss.item(),
        "ours": ours.loss.item(),
        "apart": float((gradient - mine).abs().max()),
        "moved": float(gradient.abs().max()),
        "clipped": int(ours.clipped.sum()),
        "tokens": int(mask.sum()),
        "returns": float((own - returns)[mask].abs().max()),
        "same_clip": abs(float(clipped) - float(ours.clipped.double().mean())),
    }


if __name__ == "__main__":
    data = given.batch("groups").to("verl", old_log_probs=True)
    given.say({**{name: both(data, name) for name in METHODS}, "critic": critic(data)})
