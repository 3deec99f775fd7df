"""Runs inside verl's environment: loads the exports that are for verl with its own data sets, prints what came out.

python with_verl.py FOLDER
"""

import json
import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OMP_NUM_THREADS="1")
os.environ["HF_HOME"] = str(Path(sys.argv[1]) / "cache-verl")

from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset

FOLDER = Path(sys.argv[1])


def tokenizer(template="qwen3"):
    loaded = AutoTokenizer.from_pretrained(FOLDER / "tokenizer")
    loaded.chat_template = (FOLDER / f"{template}.jinja").read_text()
    return loaded


def files(name):
    return sorted(str(file) for file in (FOLDER / name / "data").glob("*.parquet"))


def sft(template, **more):
    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 4096, "truncation": "error", **more})
    data = MultiTurnSFTDataset(files("sft-verl"), tokenizer(template), config)
    rows = []
    for number, about in enumerate(data.dataframe["agentworld"]):
        try:
            row = data[number]
        except AssertionError as error:
            rows.append({"steps": list(about["step_ids"]), "error": str(error)})
            continue
        ids = {name: row[name].tolist() for name in ("input_ids", "loss_mask")}
        rows.append({"steps": list(about["step_ids"]), **ids})
    return rows


def rl():
    config = OmegaConf.create({"max_prompt_length": 4096, "cache_dir": str(FOLDER / "cache-verl"),
                               "filter_overlong_prompts_workers": 1})  # fmt: skip
    data = RLHFDataset(files("rl-prompts"), tokenizer(), config)
    keys = ("raw_prompt", "data_source", "ability", "reward_model", "extra_info", "index")
    return [{key: data[number][key] for key in keys} for number in range(len(data))]


if __name__ == "__main__":
    told = {
        "always": sft("qwen3_training"),
        "own": sft("qwen3"),
        "own-lenient": sft("qwen3", ignore_input_ids_mismatch=True),
        "rl": rl(),
    }
    (FOLDER / "said-verl.json").write_text(json.dumps(told))
