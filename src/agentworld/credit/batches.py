"""Credit of a whole batch: arrays in the order of its steps and of their reply tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentworld.credit.reading import CreditSpec, State, read_rollout, sampled
from agentworld.credit.registry import TokenCredits
from agentworld.credit.trees import FloatArray, IntArray
from agentworld.credit.weights import Aggregation, loss_weights
from agentworld.records import Batch, BatchTrajectory


@dataclass(frozen=True, slots=True, eq=False)
class BatchCredit:
    """T trajectories with S steps whose replies have N tokens, in the order of the batch, without its padding.

    `trajectory_ids` [T], `step_ids` [S]. `trajectory` int64 [S]: the index of each step's. `credits` float64 [S]: of
    each step; where a method tells tokens apart, their mean. `offsets` int64 [S + 1]: the tokens of step s are
    `offsets[s]` to `offsets[s + 1]`. `mask` bool [N]: sampled by the policy and trained on. `advantages` float64 [N], 0
    where the policy did not sample. `weights` float64 [N]: of the loss, 0 outside the mask; they sum to 1 over
    the batch where any token is trained on.
    """

    trajectory_ids: list[str]
    step_ids: list[str]
    trajectory: IntArray
    credits: FloatArray
    offsets: IntArray
    mask: npt.NDArray[np.bool_]
    advantages: FloatArray
    weights: FloatArray

    def tokens_of(self, step: int) -> slice:
        """Where the tokens of the step with that index are."""
        return slice(int(self.offsets[step]), int(self.offsets[step + 1]))

    def of_trajectory(self, index: int) -> list[FloatArray]:
        """The advantages of one trajectory: of each step an array over its reply tokens."""
        return [self.advantages[self.tokens_of(int(step))] for step in np.flatnonzero(self.trajectory == index)]


def apply_credit(
    batch: Batch,
    spec: CreditSpec | None = None,
    *,
    aggregation: Aggregation = "token_mean",
    state: State | None = None,
) -> BatchCredit:
    """The batch's credit as `spec` says (by default group-relative), and its loss weights by `aggregation`.

    Statistics are over everything in the batch, trajectories that are not to be trained on included: credit a batch
    before it is cut into shards. `state`: takes the place of `spec.state`, a function of a step that gives anything
    hashable. Raises InvalidRequestError where an input is missing, ConfigError where `spec` is wrong.
    """
    spec = spec or CreditSpec()
    rule = spec.rule()
    needs = rule.needs
    members: list[BatchTrajectory] = []
    rollouts = []
    for item in batch.items:
        if item.padding:
            continue
        for member in item.trajectories:
            members.append(member)
            rollouts.append(read_rollout(item, member, spec, needs, state))
    found = rule(rollouts)
    steps = [(index, step) for index, member in enumerate(members) for step in member.steps]
    masks = [sampled(step) for _, step in steps]
    offsets = np.zeros(len(steps) + 1, dtype=np.int64)
    np.cumsum([len(mask) for mask in masks], out=offsets[1:])
    mask = np.concatenate(masks) if masks else np.zeros(0, dtype=np.bool_)
    advantages = np.zeros(len(mask))
    if isinstance(found, TokenCredits):
        flat = [piece for pieces in found.values for piece in pieces]
        credits = np.asarray([float(piece.mean()) if len(piece) else 0.0 for piece in flat], dtype=np.float64)
        if flat:
            advantages[mask] = np.concatenate(flat)
    else:
        credits = np.concatenate(found) if found else np.zeros(0)
        advantages[mask] = np.repeat(credits, [int(each.sum()) for each in masks])
    trained = np.asarray([members[index].trained for index, _ in steps], dtype=np.bool_)
    mask = mask & np.repeat(trained, np.diff(offsets))
    counts = np.asarray([int(each.sum()) for each in masks], dtype=np.int64)
    rows = np.asarray([index for index, _ in steps], dtype=np.int64)
    own = np.bincount(rows, weights=counts, minlength=len(members))
    denominators = np.asarray([member.loss_denominator or own[index] for index, member in enumerate(members)])
    per_step = loss_weights(counts * trained, denominators[rows], aggregation=aggregation)
    return BatchCredit(
        trajectory_ids=[member.trajectory.trajectory_id for member in members],
        step_ids=[step.step_id for _, step in steps],
        trajectory=rows,
        credits=np.asarray(credits, dtype=np.float64),
        offsets=offsets,
        mask=mask,
        advantages=advantages,
        weights=np.where(mask, np.repeat(per_step, np.diff(offsets)), 0.0),
    )
