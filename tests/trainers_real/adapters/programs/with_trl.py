"""TRL's trainers on rows of a batch: what they make of them, and their losses beside the formula on the torch batch."""

import given
import numpy as np
import torch
import trl
from datasets import Dataset
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from agentworld.trainers.adapters.trl import pool_reward, rollout_func
from agentworld.trainers.mismatched import mismatched_rows
from agentworld.trainers.objective import Objective
from agentworld.trainers.rows import Row
from agentworld.trainers.settings import TrainSettings

TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"


def tokenizer():
    loaded = AutoTokenizer.from_pretrained(given.FOLDER / "tokenizer")
    loaded.chat_template = TEMPLATE
    return loaded


def model(seed=0):
    torch.manual_seed(seed)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    heads = {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 640, "pad_token_id": 0, "eos_token_id": 2}
    return Qwen3ForCausalLM(Qwen3Config(**size, **heads))


def settings(kind, name, **more):
    fixed = {"max_steps": 1, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": "none", "bf16": False}
    return kind(output_dir=str(given.FOLDER / name), save_strategy="no", disable_tqdm=True, logging_steps=1,
                **{**fixed, **more})  # fmt: skip


def by_hand(batch, weights):
    """- sum of weights x log-probabilities of the batch, with the initial weights."""
    logits = model().eval()(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1].float()
    chosen = logits.log_softmax(-1).gather(2, batch["input_ids"][:, 1:, None])[:, :, 0]
    return float(-(chosen * weights[:, 1:]).sum())


def sft():
    batch = given.batch("sft")
    data = Dataset.from_list(batch.to("trl"))
    args = settings(trl.SFTConfig, "sft", max_length=None)
    made = trl.SFTTrainer(model=model(), args=args, train_dataset=data, processing_class=tokenizer())
    rows = [{"input_ids": row["input_ids"], "labels": row["labels"]} for row in made.train_dataset]
    plain = batch.to("torch", credit="none", logprobs="none")
    return {"rows": rows, "loss": made.train().training_loss, "by_hand": by_hand(plain, plain["weights"])}


def grpo():
    seen = {}

    class Watched(trl.GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            found = super()._generate_and_score_completions(inputs)
            seen.update(found)
            return found

    prompts = Dataset.from_list([{"prompt": "of the pool's"}] * 4)
    args = settings(trl.GRPOConfig, "grpo", num_generations=2, max_completion_length=16, scale_rewards="none",
                    temperature=1.0, beta=0.0)  # fmt: skip
    made = Watched(model=model(), args=args, train_dataset=prompts, processing_class=tokenizer(),
                   reward_funcs=pool_reward, rollout_func=rollout_func(lambda: given.batch("groups")))  # fmt: skip
    loss = made.train().training_loss
    plain = given.batch("groups").to("torch")
    return {
        "loss": loss,
        # At the weights that are trained every ratio is 1.
        "by_hand": float(-(plain["weights"] * plain["advantages"]).sum()),
        "mask": (seen["completion_mask"] * seen["tool_mask"]).tolist(),
        "completion_ids": seen["completion_ids"].tolist(),
        "prompt_ids": seen["prompt_ids"].tolist(),
        "sampled": seen["sampling_per_token_logps"].tolist() if "sampling_per_token_logps" in seen else None,
        "advantages": seen["advantages"].tolist(),
    }


def dpo():
    data = Dataset.from_list(given.batch("pairs").to("trl"))
    args = settings(trl.DPOConfig, "dpo", max_length=None)
    made = trl.DPOTrainer(model(), model(), args, train_dataset=data, processing_class=tokenizer())
    return {"columns": data.column_names, "loss": made.train().training_loss}


def kto():
    """With a policy that is not the reference, and weights of its own for good and bad replies."""
    seen = {}

    class Watched(trl.KTOTrainer):
        def _compute_loss(self, model, inputs, return_outputs):
            found = super()._compute_loss(model, inputs, return_outputs)
            seen.update({name: each.detach().clone() for name, each in inputs.items()}, loss=float(found.detach()))
            return found

    data = Dataset.from_list(given.batch("judged").to("trl"))
    args = settings(trl.KTOConfig, "kto", max_length=None, beta=0.4, desirable_weight=1.5, undesirable_weight=0.5)
    made = Watched(model(), model(1), args, train_dataset=data, processing_class=tokenizer())
    labels = [row["label"] for row in made.train_dataset]
    made.train()
    units = [[each] for each in rows_of(seen, "")]
    for unit, label in zip(units, seen["label"].tolist(), strict=True):
        unit[0].preferred = bool(label)
    own = TrainSettings(method="kto", merging="off", beta=0.4, desirable_weight=1.5, undesirable_weight=0.5)
    trained = model(1)
    objective = Objective(trained, own)  # The reference is the weights as they are now.
    trained.load_state_dict(model().state_dict())
    found = objective.gradient(units)
    others = [each.ids.tolist() for each in mismatched_rows(units)]
    return {
        "labels": labels,
        "loss": seen["loss"],
        "ours": found.loss,
        "kl": found.means["kl"],
        "said": made.state.log_history[0]["kl"],
        "same_pairs": others == [each.ids.tolist() for each in rows_of(seen, "KL_")],
    }


def rows_of(inputs, prefix):
    """What a collator of TRL's laid out, as rows of ours."""
    rows = []
    for ids, there, mask in zip(
        *(inputs[f"{prefix}{name}"] for name in ("input_ids", "attention_mask", "completion_mask")), strict=True
    ):
        whole = ids[there.bool()].numpy()
        zeros = np.zeros(len(whole), np.float32)
        rows.append(Row("", whole, mask[there.bool()].bool().numpy(), zeros, zeros))
    return rows


def datasets():
    data = given.batch("groups").to("datasets")
    data.save_to_disk(given.FOLDER / "saved")
    again = Dataset.load_from_disk(str(given.FOLDER / "saved"))
    return {"type": type(data).__name__, "rows": again.to_dict()}


if __name__ == "__main__":
    given.say({"sft": sft(), "grpo": grpo(), "dpo": dpo(), "kto": kto(), "datasets": datasets()})
