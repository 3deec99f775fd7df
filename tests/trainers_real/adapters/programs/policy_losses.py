"""verl's policy losses and their gradients, on numbers that it is given."""

import json

import given
import torch
from verl.trainer.ppo.core_algos import compute_policy_loss_gspo, compute_policy_loss_vanilla
from verl.workers.config import ActorConfig

# Of the reference trainer: verl's function, its aggregation and its clip.
METHODS = {
    "grpo": (compute_policy_loss_vanilla, "seq-mean-token-mean", 0.2, 0.2),
    "dapo": (compute_policy_loss_vanilla, "token-mean", 0.2, 0.28),
    "dr_grpo": (compute_policy_loss_vanilla, "seq-mean-token-sum-norm", 0.2, 0.2),
    "gspo": (compute_policy_loss_gspo, "seq-mean-token-mean", 3e-4, 4e-4),
}


def main():
    numbers = json.loads((given.FOLDER / "numbers.json").read_text())
    old, advantages, mask = (torch.tensor(numbers[name]) for name in ("old", "advantages", "mask"))
    said = {}
    for method, (loss_of, aggregation, low, high) in METHODS.items():
        config = ActorConfig(
            strategy="fsdp", rollout_n=2, ppo_mini_batch_size=4, ppo_micro_batch_size_per_gpu=4,
            clip_ratio=low, clip_ratio_low=low, clip_ratio_high=high,
        )  # fmt: skip
        new = torch.tensor(numbers["new"], requires_grad=True)
        loss, _ = loss_of(old, new, advantages, mask, loss_agg_mode=aggregation, config=config)
        loss.backward()
        said[method] = {"loss": loss.item(), "gradient": new.grad.tolist()}
    given.say(said)


if __name__ == "__main__":
    main()
