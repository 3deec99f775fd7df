"""Which change a cell makes to its batches, noted batch by batch so that an interruption loses none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.records import Batch
from experiments.batches import Change, Retokenised
from experiments.cells import Cell
from experiments.progress import ProgressFile


def change_for(cell: Cell, progress: ProgressFile) -> Change | None:
    """What the cell does to each batch before it is trained on.

    Counts go to the entry of the batch in the curve before the batch is trained on, so that a checkpoint that has the
    batch finds them, and a batch that is trained on again is counted once.
    """
    if cell.tokens == "sampled":
        return None
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
