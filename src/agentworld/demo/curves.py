"""What the demo's trainer tells of itself while it works, so that the dashboard draws its curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from agentworld.records import Metrics
from agentworld.trainers.metrics import MetricsBoard
from agentworld.trainers.progress import Updates

EVERY = 10
"""Updates of one batch that are told of as one."""


class Curves:
    """Tells numbers under the name of one run."""

    def __init__(self, board: MetricsBoard, run: str) -> None:
        self._board = board
        self._run = run

    def tell(
        self, step: int, values: Mapping[str, float | None], kind: Literal["train", "evaluation"] = "train"
    ) -> None:
        """Those that are numbers; told of a step again, the latest counts."""
        known = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
        if known:
            self._board.add_metrics([Metrics(run=self._run, step=step, values=dict(known), kind=kind)])


class ToldUpdates:
    """The progress of many updates on each batch, shown, and told every `EVERY` of them as their mean loss.

    `before`: updates that were made earlier; the steps of the curve count all.
    """

    def __init__(self, shown: Updates, curves: Curves, before: int) -> None:
        self._shown = shown
        self._curves = curves
        self._before = before
        self._losses: list[float] = []

    def __call__(self, done: int, total: int, figures: dict[str, float]) -> None:
        """`done` of `total` updates are made."""
        self._shown(done, total, figures)
        self._losses.append(figures["loss"])
        if done == total or len(self._losses) == EVERY:
            self._curves.tell(self._before + done, {"loss": math.fsum(self._losses) / len(self._losses)})
            self._losses = []
        if done == total:
            self._before += total
