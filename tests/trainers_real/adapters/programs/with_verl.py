"""verl's DataProto, its advantages and its policy loss, on a batch of the pool's."""

import given
import numpy as np
import torch
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, compute_policy_loss_vanilla
from verl.workers.config import ActorConfig


def main():
    data = given.batch("groups").to("verl", old_log_probs=True)
    assert type(data) is DataProto
    path = given.FOLDER / "data.proto"
    data.save_to_disk(path)
    again = DataProto.load_from_disk(path)
    assert all(torch.equal(again.batch[name], data.batch[name]) for name in sorted(data.batch.keys()))
    halves = data.chunk(2)
    together = DataProto.concat(halves)
    assert torch.equal(together.batch["responses"], data.batch["responses"])
    mask = data.batch["response_mask"]
    made = {
        str(by_std): compute_grpo_outcome_advantage(
            data.batch["rm_scores"], mask, data.non_tensor_batch["uid"], norm_adv_by_std_in_grpo=by_std
        )[0].tolist()
        for by_std in (True, False)
    }
    torch.manual_seed(0)
    noise = 0.4 * torch.randn(mask.shape)
    new = (data.batch["old_log_probs"] + noise).requires_grad_()
    config = ActorConfig(strategy="fsdp", rollout_n=2, ppo_mini_batch_size=4, ppo_micro_batch_size_per_gpu=4,
                         clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2)  # fmt: skip
    losses = {}
    for mode in ("token-mean", "seq-mean-token-mean"):
        loss, _ = compute_policy_loss_vanilla(
            data.batch["old_log_probs"], new, data.batch["advantages"], mask, loss_agg_mode=mode, config=config
        )
        losses[mode] = loss.item()
    loss.backward()
    given.say(
        {
            "rows": len(data),
            "mask": mask.tolist(),
            "advantages": data.batch["advantages"].tolist(),
            "old": data.batch["old_log_probs"].tolist(),
            "new": new.detach().tolist(),
            "gradient_outside": float((new.grad * (1 - mask)).abs().max()),
            "made": made,
            "losses": losses,
            "halves": [len(half) for half in halves],
            "turns": data.non_tensor_batch["__num_turns__"].tolist(),
            "objects": sorted(name for name, value in data.non_tensor_batch.items() if value.dtype == np.dtype(object)),
        }
    )


if __name__ == "__main__":
    main()
