"""verl trains on vLLM, with agents of AgentWorld on its engines: one command on a machine with GPUs.

    pip install verl vllm TransferQueue agentworld
    python examples/verl_vllm/train.py examples/verl_vllm/train.toml
    python examples/verl_vllm/train.py examples/verl_vllm/train.toml --dry-run     # without GPU, vLLM and weights

It writes the prompts of the task set as verl's parquet files and the entry of the agent loop, and starts verl's own
trainer. The dry run has verl's configuration check every override, plays one small batch on engines that a script
speaks for, and computes verl's advantage and loss on what came of it.
"""

import argparse
import json
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from agentworld.config import convert, read_toml
from agentworld.verl_loop.hydra_config import overrides, write_loop_config
from agentworld.verl_loop.playing import prompt_row
from agentworld.verl_loop.settings import read_settings


class Training(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file's fields."""

    model: str
    loop: str = "loop.toml"
    folder: str = "out"
    prompts: int = 512
    held_out: int = 64
    rollouts: int = 8
    gpus: int = 1
    engine: str = "vllm"
    verl: tuple[str, ...] = ()


def prepare(path: Path) -> tuple[Training, list[str]]:
    """The settings, and verl's command line for them; the files that it names are written."""
    training = convert(read_toml(path), Training, str(path))
    folder = path.parent / training.folder
    folder.mkdir(parents=True, exist_ok=True)
    loop = path.parent / training.loop
    task_set = read_settings(loop).the_task_set()
    if task_set is None:
        sys.exit(f"{loop}: the prompts come from [task_set]; without one, give data.train_files and data.val_files")
    for name, count, split in (("train", training.prompts, "train"), ("val", training.held_out, "heldout")):
        rows = [prompt_row(task, index) for index, task in enumerate(task_set.tasks(count, split=split))]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return training, [
        f"data.train_files={folder.resolve()}/train.parquet",
        f"data.val_files={folder.resolve()}/val.parquet",
        f"actor_rollout_ref.model.path={training.model}",
        f"actor_rollout_ref.rollout.name={training.engine}",
        f"actor_rollout_ref.rollout.n={training.rollouts}",
        f"trainer.n_gpus_per_node={training.gpus}",
        f"trainer.default_local_dir={folder.resolve()}/checkpoints",
        *overrides(write_loop_config(loop, folder / "loop.yaml")),
        *training.verl,
    ]


def main() -> None:
    """Train, or say what a dry run saw."""
    parser = argparse.ArgumentParser(description="Train with verl on vLLM.")
    parser.add_argument("settings", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    training, command = prepare(options.settings)
    if options.dry_run:
        sys.path.insert(0, str(Path(__file__).parent))
        from dry_run import dry_run

        print(json.dumps(dry_run(training, command)))
        return
    from verl.trainer.main_ppo import main as verl_main

    sys.argv = ["main_ppo", *command]
    verl_main()


if __name__ == "__main__":
    main()
