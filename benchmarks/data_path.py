"""What a batch costs from the lease to tensors on the device, beside the training step that it is for.

    python -m benchmarks.data_path [--device cpu] [--groups 2] [--rollouts 4] [--turns 3] [--tokens 64] [--steps 2]

The pool is a SQLite file. Each step: a lease, the batch as padded tensors on the device, a step of the reference
trainer (GRPO; forward, backward and optimizer; it makes its own rows, which counts as training), and the
acknowledgement. On CPU processor time of this process, the store's threads included, on one thread of torch; elsewhere
the clock. The first step warms up. Exit code 1 where the data path takes 5% of a step or more.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

import agentworld as aw
from agentworld.records import NewTrajectory, Sampling, Step
from agentworld.trainers.measuring import one_thread, random_model
from agentworld.trainers.reference import Trainer
from agentworld.trainers.settings import TrainSettings

MOST = 0.05  # of a training step that the data path may take


class StepCost(NamedTuple):
    """Seconds of one step, and its tokens as the trainer saw them."""

    lease: float
    tensors: float
    train: float
    ack: float
    tokens: int

    @property
    def share(self) -> float:
        """Of lease, tensors and acknowledgement, beside the training."""
        return (self.lease + self.tensors + self.ack) / self.train


def fill(pool: Any, *, batches: int, groups: int, rollouts: int, turns: int, tokens: int, vocabulary: int) -> None:
    """Groups of rollouts of `turns` turns, each of a prompt's piece and a reply of `tokens` ids."""
    chance = random.Random(0)

    def drawn() -> list[int]:
        return [chance.randrange(vocabulary) for _ in range(tokens)]

    for group in range(batches * groups):
        opening = drawn() + drawn()
        for rollout in range(rollouts):
            name = f"g{group}-{rollout}"
            pool.create_trajectory(
                NewTrajectory(trajectory_id=name, group_id=f"g{group}", group_size=rollouts, rollout_index=rollout)
            )
            prompt, steps = list(opening), []
            for number in range(turns):
                reply = drawn()
                steps.append(
                    Step(
                        step_id=f"{name}-{number}",
                        trajectory_id=name,
                        prompt_ids=prompt,
                        response_ids=reply,
                        response_logprobs=[-chance.random() for _ in reply],
                        logprob_space="raw",
                        sampling=Sampling(temperature=1.0),
                        token_source="engine",
                    )
                )
                prompt = prompt + reply + drawn()
            pool.append_steps(steps)
            pool.complete_trajectory(name, "finished", float(rollout % 2))


def measure(
    folder: Path, model: Any, *, device: str, steps: int, groups: int, rollouts: int, turns: int, tokens: int
) -> list[StepCost]:
    """The costs of `steps` steps after one that warms up."""
    trainer = Trainer(model, TrainSettings(method="grpo", verify_merging=False, learning_rate=1e-6), folder)
    clock = time.process_time if torch.device(device).type == "cpu" else time.perf_counter
    spec = aw.BatchSpec(method="grpo", groups=groups, rollouts=rollouts)
    found = []
    with aw.open_pool(f"sqlite:///{folder}/pool.db") as pool:
        vocabulary = int(model.config.vocab_size)
        fill(pool, batches=steps + 1, groups=groups, rollouts=rollouts, turns=turns, tokens=tokens,
             vocabulary=vocabulary)  # fmt: skip
        consumer = pool.consumer("bench")
        for _ in range(steps + 1):
            times = [clock()]
            leased = consumer.lease(spec)
            assert leased is not None
            times.append(clock())
            leased.to("torch", device=device)
            _synchronize(device)
            times.append(clock())
            metrics = trainer.train_batch(leased.batch)
            _synchronize(device)
            times.append(clock())
            leased.ack()
            times.append(clock())
            lease, tensors, train, ack = (after - before for before, after in pairwise(times))
            found.append(StepCost(lease, tensors, train, ack, metrics.sequence_tokens))
    return found[1:]


def _synchronize(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def main(given: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where the data path takes too much."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_path", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    for name, number in (("groups", 2), ("rollouts", 4), ("turns", 3), ("tokens", 64), ("steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--hidden", type=int, default=320, help="width of the model, a multiple of 64")
    parser.add_argument("--layers", type=int, default=6)
    chosen = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="agentworld-bench-") as folder, one_thread():
        model = random_model(device=chosen.device, hidden=chosen.hidden, layers=chosen.layers)
        sizes = {name: getattr(chosen, name) for name in ("steps", "groups", "rollouts", "turns", "tokens")}
        found = measure(Path(folder), model, device=chosen.device, **sizes)
    share = median(each.share for each in found)
    parameters = sum(each.numel() for each in model.parameters())
    print(f"model of {parameters / 1e6:.1f} M parameters, {found[0].tokens} tokens a step")
    for name in ("lease", "tensors", "train", "ack"):
        print(f"{name:>8}  {median(getattr(each, name) for each in found) * 1000:10.1f} ms")
    print(f"data path {share:.2%} of a training step, at most {MOST:.0%}: {'met' if share < MOST else 'NOT met'}")
    return int(share >= MOST)


if __name__ == "__main__":
    sys.exit(main())
