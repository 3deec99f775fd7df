"""Runs inside TRL's environment: loads every export, has TRL prepare and train on it, prints what it made of it.

python with_trl.py FOLDER
"""

import json
import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", WANDB_DISABLED="true", OMP_NUM_THREADS="1")
os.environ["HF_HOME"] = str(Path(sys.argv[1]) / "cache")

import torch
import trl
from datasets import load_dataset
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification

FOLDER = Path(sys.argv[1])
torch.manual_seed(0)
TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"


def tokenizer():
    loaded = AutoTokenizer.from_pretrained(FOLDER / "tokenizer")
    loaded.chat_template = TEMPLATE.read_text()
    return loaded


def model(kind=Qwen3ForCausalLM, **more):
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    heads = {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 640, "pad_token_id": 0, "eos_token_id": 2}
    return kind(Qwen3Config(**size, **heads, **more))


def settings(kind, name, **more):
    fixed = {"max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True, "report_to": "none", "bf16": False}
    return kind(output_dir=str(FOLDER / "runs" / name), save_strategy="no", disable_tqdm=True, **{**fixed, **more})


def load(name, split="train"):
    return load_dataset(str(FOLDER / name), split=split)


def prepared(trainer, *columns):
    """What the trainer made of each row, and the loss of one step."""
    rows = [
        {name: row[name] for name in columns} | {"steps": row["agentworld"]["step_ids"]}
        for row in trainer.train_dataset
    ]
    loss = trainer.train().training_loss
    return {"rows": rows, "loss": loss}


def sft(name, **more):
    args = settings(trl.SFTConfig, name, max_length=None, **more)
    made = trl.SFTTrainer(model=model(), args=args, train_dataset=load(name), processing_class=tokenizer())
    return prepared(made, "input_ids", "labels")


def dpo():
    args = settings(trl.DPOConfig, "dpo", max_length=None)
    made = trl.DPOTrainer(model(), model(), args, train_dataset=load("preference"), processing_class=tokenizer())
    return prepared(made, "prompt_ids", "chosen_ids", "rejected_ids")


def reward():
    args = settings(trl.RewardConfig, "reward", max_length=None)
    scorer = model(Qwen3ForSequenceClassification, num_labels=1)
    made = trl.RewardTrainer(model=scorer, args=args, train_dataset=load("preference"), processing_class=tokenizer())
    return prepared(made, "chosen_ids", "rejected_ids", "margin")


def kto():
    args = settings(trl.KTOConfig, "kto", max_length=None)
    made = trl.KTOTrainer(model(), model(), args, train_dataset=load("kto"), processing_class=tokenizer())
    return prepared(made, "prompt_ids", "completion_ids", "label")


def grpo():
    seen = []

    def judge(completions, reward_model, data_source, agentworld, **rest):
        seen.append({"truth": reward_model[0]["ground_truth"], "source": data_source[0], "from": agentworld[0]})
        return [float(len(each[0]["content"])) for each in completions]

    args = settings(trl.GRPOConfig, "grpo", num_generations=2, max_completion_length=4)
    made = trl.GRPOTrainer(
        model=model(), args=args, train_dataset=load("rl-prompts"), processing_class=tokenizer(), reward_funcs=judge
    )
    return {"loss": made.train().training_loss, "seen": seen[0]}


def loaded():
    """Every folder as `datasets` loads it: columns, and the first row where it is plain."""
    found = {}
    for folder in sorted(each for each in FOLDER.iterdir() if (each / "README.md").exists()):
        data = load_dataset(str(folder))["train"]
        row = data[0]
        images = [list(image.size) for each in data for image in each.get("images", [])]
        row.pop("images", None)
        found[folder.name] = {"rows": len(data), "columns": data.column_names, "row": row, "images": images}
    return found


def main():
    said = {
        "loaded": loaded(),
        "sft": sft("sft", assistant_only_loss=True),
        "sft-jsonl": sft("sft-jsonl", assistant_only_loss=True),
        "sft-completion": sft("sft-completion", assistant_only_loss=True),
        "sft-each": sft("sft-each", assistant_only_loss=True),
        "sft-each-whole": sft("sft-each"),
        "sft-tokens": sft("sft-tokens"),
        "sft-answers": sft("sft-answers"),
        "dpo": dpo(),
        "reward": reward(),
        "kto": kto(),
        "grpo": grpo(),
    }
    model().save_pretrained(FOLDER / "model")
    tokenizer().save_pretrained(FOLDER / "model")
    (FOLDER / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
