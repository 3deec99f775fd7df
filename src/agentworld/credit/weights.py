"""From credits of steps to advantages and loss weights of tokens, so that forks do not weigh more. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from agentworld.credit.trees import FloatArray, IntArray, Shared, StepTree
from agentworld.errors import ConfigError, InvalidRequestError

# token_mean: every sampled token counts the same (arXiv:2503.14476, equation 8). trajectory_mean: every trajectory
# counts the same, and its tokens share its weight over all its rows (arXiv:2402.03300, equation 3).
Aggregation = Literal["token_mean", "trajectory_mean"]


@dataclass(frozen=True, slots=True, eq=False)
class PathTokens:
    """One path of a tree as a row: the steps on it, int64 [steps], and of all their reply tokens, one after the other,
    `advantages` and `weights`, float64 [tokens], both 0 where the policy did not sample.
    """

    steps: IntArray
    advantages: FloatArray
    weights: FloatArray


def loss_weights(
    tokens: Sequence[int] | IntArray,
    denominators: Sequence[float] | FloatArray | IntArray,
    *,
    shares: Sequence[float] | FloatArray | None = None,
    aggregation: Aggregation = "token_mean",
) -> FloatArray:
    """The weight of each token of each row, float64 [rows]; over all tokens of all rows weights sum to 1.

    `tokens` [rows]: sampled tokens. `denominators` [rows]: the loss denominator of the row's trajectory, over all its
    rows together. `shares` [rows]: the part of its weight that a row has where the same tokens stand in other rows too
    (`StepTree.path_shares`); 1 where it is None. token_mean: w = share / sum(tokens * shares). trajectory_mean: w =
    (share / denominator) / sum(tokens * share / denominator).
    """
    counts = np.asarray(tokens, dtype=np.float64)
    parts = np.ones(len(counts)) if shares is None else np.asarray(shares, dtype=np.float64)
    if aggregation == "trajectory_mean":
        parts = parts / np.maximum(np.asarray(denominators, dtype=np.float64), 1.0)
    elif aggregation != "token_mean":
        raise ConfigError(
            f"no aggregation {aggregation!r}", path="aggregation", hint="Use token_mean or trajectory_mean"
        )
    return np.asarray(parts / max(float((counts * parts).sum()), 1e-12), dtype=np.float64)


def path_tokens(
    tree: StepTree,
    credits: Sequence[float] | FloatArray,
    masks: Sequence[npt.ArrayLike],
    *,
    denominator: float | None = None,
    shared: Shared = "mean",
) -> list[PathTokens]:
    """The trajectory as one row a path, for trainers that take whole paths.

    `credits` [n]: of each step. `masks`: of each step an array over its reply, true where the policy sampled.
    `denominator`: the trajectory's loss denominator, its sampled tokens, each once; counted where it is None. A token
    weighs share / denominator, so over all paths a trajectory's weights sum to 1 however it forked. With per_path,
    where a shared token stays in each row with its whole term, the denominator is multiplied by how often tokens
    appear.
    """
    sampled = [np.asarray(mask, dtype=np.float64) > 0 for mask in masks]
    values = np.asarray(credits, dtype=np.float64)
    if len(sampled) != len(tree) or values.shape != (len(tree),):
        raise InvalidRequestError(f"{len(tree)} steps need a credit and a mask each", path="credits")
    lengths = np.asarray([int(mask.sum()) for mask in sampled], dtype=np.float64)
    paths, shares = tree.paths(), tree.path_shares(shared)
    total = max(float(lengths.sum()), 1.0)
    whole = total if denominator is None else float(denominator)
    if shared == "per_path" and lengths.any():
        whole *= sum(float(lengths[path].sum()) for path in paths) / total
    rows = []
    for path, parts in zip(paths, shares, strict=True):
        pieces = [sampled[step] for step in path]
        advantages = [np.where(mask, values[step], 0.0) for step, mask in zip(path, pieces, strict=True)]
        weights = [np.where(mask, part / whole, 0.0) for part, mask in zip(parts, pieces, strict=True)]
        rows.append(PathTokens(path, np.concatenate(advantages), np.concatenate(weights)))
    return rows
