"""Which change a cell makes to its batches, and that an interrupted run goes on with what the change knew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.records import Batch
from experiments.batches import Change, Critic, Retokenised
from experiments.cells import Cell
from experiments.progress import ProgressFile


def change_for(cell: Cell, model: Any, folder: Path, progress: ProgressFile, done: int) -> Change | None:
    """What the cell does to each batch before it is trained on, after `done` batches that the weights contain.

    What the change learns from a batch is kept before that batch is trained on, and under its number: a checkpoint that
    has the batch finds it, and a batch that is trained on again has its effect once.
    """
    if cell.tokens == "retokenised":
        return _retokenising(progress)
    return _valuing(model, folder, progress, done) if cell.method == "ppo" else None


def _retokenising(progress: ProgressFile) -> Change:
    """Counts go to the entry of the batch in the curve."""
    change = Retokenised(load_tokenizer(str(POCKET_TOKENIZER_PATH)))

    def retokenise(batch: Batch) -> Batch:
        made = change(batch)
        progress.now.curve[-1] |= {"retokenised": change.steps, "other_ids": change.different}
        progress.save()
        return made

    return retokenise


def retokenised_figures(curve: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The share of the steps whose ids are not those that were sampled; empty where nothing was retokenised."""
    steps = sum(point.get("retokenised", 0) for point in curve)
    return {"steps_with_other_ids": sum(point.get("other_ids", 0) for point in curve) / steps} if steps else {}


def _valuing(model: Any, folder: Path, progress: ProgressFile, done: int) -> Change:
    """The critic is kept after each batch; the newest that knows no batch which the weights do not goes on."""
    critic = Critic(model)
    for number in range(done, 0, -1):
        if (kept := folder / f"critic-{number}.npz").exists():
            critic.load(kept)
            break

    def value(batch: Batch) -> Batch:
        made = critic(batch)
        critic.save(folder / f"critic-{len(progress.now.curve)}.npz")
        return made

    return value
