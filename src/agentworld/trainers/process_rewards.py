"""A process reward model that was trained here as an evaluator of steps: how likely each is to be good."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from agentworld.errors import ConfigError
from agentworld.records import BatchTrajectory, Step
from agentworld.rewards.functions import evaluator
from agentworld.trainers.forward import states_at
from agentworld.trainers.heads import head_scores, new_head
from agentworld.trainers.judged_rows import ending_rows
from agentworld.trainers.minibatches import trained
from agentworld.trainers.parts import flat_parts
from agentworld.trainers.rows import has_images

TOKENS_AT_ONCE = 4096


class Judge(NamedTuple):
    """A causal language model, and the layer that makes a logit of a hidden state."""

    model: Any
    head: Any


@evaluator("process_reward_model", scope="step")
def process_reward_model(
    run: BatchTrajectory, *, checkpoint: str, model: str | None = None, device: str | None = None
) -> dict[str, float]:
    """The probability that a step is good, by step id, of each step with ids and without images.

    `checkpoint`: of a job with the method prm. `model`: the one that it trained, by default as the job named it.
    """
    judge = open_judge(checkpoint, model, device)
    return step_probabilities(judge, [step for step in run.steps if _readable(step)])


def open_judge(checkpoint: str, model: str | None = None, device: str | None = None) -> Judge:
    """The model of a checkpoint with its head, loaded once for as long as its files are the same; ConfigError where it
    has none, or is of another model.
    """
    folder = Path(checkpoint).expanduser()
    return _loaded(folder, _state(folder), model, device)


def _state(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """What changes where a file is written anew or another is put in its place."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    told = ((path, path.stat()) for path in files)
    return tuple((str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in told)


@functools.lru_cache(maxsize=2)
def _loaded(folder: Path, state: object, model: str | None, device: str | None) -> Judge:
    from agentworld.engines.builtin.models import open_model
    from agentworld.trainers.checkpoint import load_model, read_record
    from agentworld.trainers.lora import LoraSettings, add_lora

    record = read_record(folder)
    name = model or record.fixed.get("model")
    if record.method != "prm" or not name:
        raise ConfigError(
            f"{folder} is a checkpoint of method {record.method} by {name or 'an unnamed model'}",
            path="checkpoint",
            hint="Train with method prm, or name the model that was trained",
        )
    loaded = open_model(name, device=device).model
    lora = record.fixed.get("lora")
    if lora is not None:
        add_lora(loaded, msgspec.convert(lora, LoraSettings))
    head = new_head(loaded)
    load_model(folder, loaded, head)
    return Judge(loaded.eval().requires_grad_(False), head.requires_grad_(False))


def step_probabilities(judge: Judge, steps: list[Step]) -> dict[str, float]:
    """By step id, the probability that the step is good: sigmoid of the logit after its last token."""
    import torch

    found: dict[str, float] = {}
    rows = ending_rows(steps)
    with torch.no_grad():
        for part in flat_parts([[row] for row in rows], TOKENS_AT_ONCE):
            logits = head_scores(judge.head, states_at(judge.model, part, [trained(row) for row in part.rows]))
            likely = torch.sigmoid(logits.double()).cpu().numpy()
            names = [step_id for row in part.rows for step_id in row.step_ids]
            found |= dict(zip(names, np.asarray(likely).tolist(), strict=True))
    return found


def _readable(step: Step) -> bool:
    return bool(step.prompt_ids) and bool(step.response_ids) and not has_images(step)
