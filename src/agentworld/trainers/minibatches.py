"""Rows into updates, and what each of their tokens weighs. Pure numpy.

A unit is what a loss takes together: one row, or with preferences the rows of one pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentworld.credit import Aggregation, loss_weights
from agentworld.errors import ConfigError
from agentworld.merge import Convention, TokenTree, build_tree, convention_weights
from agentworld.trainers.recipes import LossAggregation
from agentworld.trainers.rows import Row

Unit = Sequence[Row]
_MEANS: dict[LossAggregation, Aggregation] = {"token_mean": "token_mean", "trajectory_mean": "trajectory_mean"}


def plan_updates(
    units: Sequence[Unit], *, epochs: int, rows_per_update: int, generator: np.random.Generator
) -> list[list[Unit]]:
    """The units of each optimizer update, in order: `epochs` passes, each shuffled anew.

    A pass is cut into updates of equal size (to one unit), so that no update is a small remainder.
    """
    plan: list[list[Unit]] = []
    for _ in range(epochs):
        order = generator.permutation(len(units))
        pieces = max(1, round(len(units) / rows_per_update))
        plan.extend([units[index] for index in piece] for piece in np.array_split(order, pieces) if len(piece))
    return plan


def trained(row: Row) -> npt.NDArray[np.bool_]:
    """The tokens of a row that are trained, bool [L]: those of its mask but the first, which nothing predicts."""
    found = row.mask.copy()
    found[:1] = False
    return found


def row_tree(rows: Sequence[Row]) -> TokenTree:
    """The token tree of rows; those of other temperatures share nothing."""
    heats = {row.temperature for row in rows}
    marks = None
    if len(heats) > 1:
        ordered = sorted(heats)
        marks = np.concatenate([np.full(len(row), ordered.index(row.temperature), np.int64) for row in rows])
    return build_tree([row.ids for row in rows], distinct=marks)


def token_weights(rows: Sequence[Row], aggregation: LossAggregation, horizon: int = 1) -> list[float]:
    """The weight of each trained token of each row of an update.

    The means sum to 1 over the update (see `loss_weights`). trajectory_sum: 1 / trajectories. constant: 1 /
    (trajectories * horizon), as Dr. GRPO has it (arXiv:2503.20783, section 3.2). Trajectories are those of the update.
    """
    if aggregation in _MEANS:
        counts, whole = [row.trained for row in rows], [row.trajectory_tokens for row in rows]
        return [float(weight) for weight in loss_weights(counts, whole, aggregation=_MEANS[aggregation])]
    if aggregation not in ("trajectory_sum", "constant"):
        raise ConfigError(f"no aggregation {aggregation!r}", path="aggregation")
    trajectories = len({row.trajectory_id for row in rows})
    weight = 1.0 / trajectories / (horizon if aggregation == "constant" else 1)
    return [weight] * len(rows)


def flat_weights(
    rows: Sequence[Row],
    aggregation: LossAggregation,
    *,
    horizon: int = 1,
    shared: Convention = "per_path",
    factors: str | None = None,
) -> list[npt.NDArray[np.float64]]:
    """The weights of an update's tokens, one float64 [L] a row, 0 outside what is trained.

    `token_weights`, times the annotation `factors`, times what the convention `shared` gives a token that several of
    the update's rows train. The same however the update is cut into micro-batches.
    """
    masks = [trained(row) for row in rows]
    plain = token_weights(rows, aggregation, horizon)
    found: list[npt.NDArray[np.float64]] = [np.where(mask, each, 0.0) for mask, each in zip(masks, plain, strict=True)]
    if factors is not None:
        found = [weights * row.arrays[factors] for weights, row in zip(found, rows, strict=True)]
    if shared != "per_path" and rows:
        tree = row_tree(rows)
        parts = np.split(convention_weights(tree, np.concatenate(masks), shared), tree.offsets[1:-1])
        found = [weights * part for weights, part in zip(found, parts, strict=True)]
    return found
