"""Rows into updates and forward passes: shuffling, grouping by length, padding, token weights. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentworld.credit import Aggregation, loss_weights
from agentworld.trainers.rows import Row


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B rows of one forward pass, right-padded to L.

    `ids` int64 [B, L] (0 in the padding), `mask` bool [B, L], `logprobs`, `advantages`, `weights` float32 [B, L],
    `temperatures` float32 [B]. A token at position 0 has no prediction and is never in the mask.
    """

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    temperatures: npt.NDArray[np.float32]


def plan_updates(
    rows: Sequence[Row], *, epochs: int, rows_per_update: int, generator: np.random.Generator
) -> list[list[Row]]:
    """The rows of each optimizer update, in order: `epochs` passes, each shuffled anew.

    A pass is cut into updates of equal size (to one row), so that no update is a small remainder.
    """
    plan: list[list[Row]] = []
    for _ in range(epochs):
        order = generator.permutation(len(rows))
        pieces = max(1, round(len(rows) / rows_per_update))
        plan.extend([rows[index] for index in piece] for piece in np.array_split(order, pieces) if len(piece))
    return plan


def micro_batches(rows: Sequence[Row], *, tokens: int, aggregation: Aggregation = "token_mean") -> list[MicroBatch]:
    """One update's rows as padded micro-batches of similar lengths, each at most `tokens` padded (or a single row)."""
    weights = token_weights(rows, aggregation)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    groups: list[list[int]] = []
    for index in order:
        if groups and len(rows[index]) * (len(groups[-1]) + 1) <= tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [_pad([rows[index] for index in group], [weights[index] for index in group]) for group in groups]


def token_weights(rows: Sequence[Row], aggregation: Aggregation) -> list[float]:
    """The weight of each trained token of each row; over the update they sum to 1 (see `loss_weights`)."""
    trained, whole = [row.trained for row in rows], [row.trajectory_tokens for row in rows]
    return [float(weight) for weight in loss_weights(trained, whole, aggregation=aggregation)]


def _pad(rows: Sequence[Row], weights: Sequence[float]) -> MicroBatch:
    shape = (len(rows), max(len(row) for row in rows))
    ids = np.zeros(shape, np.int64)
    mask = np.zeros(shape, np.bool_)
    logprobs, advantages, spread = (np.zeros(shape, np.float32) for _ in range(3))
    for number, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        length = len(row)
        ids[number, :length] = row.ids
        mask[number, :length] = row.mask
        logprobs[number, :length] = row.logprobs
        advantages[number, :length] = row.advantages
        spread[number, :length] = row.mask * np.float32(weight)
    mask[:, 0] = False
    temperatures = np.asarray([row.temperature for row in rows], np.float32)
    return MicroBatch(ids, mask, logprobs, advantages, spread, temperatures)
