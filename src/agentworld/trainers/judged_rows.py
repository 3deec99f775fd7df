"""Rows of what was judged by itself: whole trajectories, for KTO, and steps, for process reward models. Pure numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.credit.reading import PRIMARY
from agentworld.errors import InvalidRequestError
from agentworld.records import Batch, BatchItem, Step
from agentworld.trainers.rows import Row, plain_rows, real_items, rows_step

# The array of a row that says which of its steps are good, at their last tokens; no annotation is called so.
GOOD = "/good"


def unpaired_rows(
    batch: Batch, threshold: float, names: Sequence[str] = ()
) -> tuple[list[list[Row]], npt.NDArray[np.float64]]:
    """The rows of each trajectory that is trained on, `preferred` where its primary reward is at least `threshold`; and
    these rewards.

    Raises InvalidRequestError where a trajectory has no reward.
    """
    units, rewards = [], []
    for item in real_items(batch):
        for member in item.trajectories:
            rows = plain_rows(member, behaviour=False, names=names)
            if not rows:
                continue
            reward = member.trajectory.reward
            if reward is None:
                raise InvalidRequestError(
                    f"trajectory {member.trajectory.trajectory_id} has no reward",
                    path="reward",
                    hint="Absent is not zero: reward it first",
                )
            for row in rows:
                row.preferred = reward >= threshold
            units.append(rows)
            rewards.append(reward)
    return units, np.asarray(rewards, dtype=np.float64)


def stepwise_rows(batch: Batch, threshold: float) -> list[Row]:
    """Rows that mark the last token of each step's reply, with the array GOOD: 1 there where the step's primary reward
    is at least `threshold`, else 0. A trajectory's loss denominator is how many steps of it were judged.

    Raises InvalidRequestError where a step lacks that reward.
    """
    found: list[Row] = []
    for item in real_items(batch):
        for member in item.trajectories:
            steps = member.steps if member.trained else []
            rows = ending_rows(steps, {step.step_id: _reward(item, step) >= threshold for step in steps})
            for row in rows:
                row.trajectory_tokens = sum(each.trained for each in rows)
            found.extend(rows)
    return found


def ending_rows(steps: Sequence[Step], good: Mapping[str, bool] | None = None) -> list[Row]:
    """Rows of one trajectory that mark the last token of each step's reply; with `good`, by step id, the array GOOD."""
    rows: list[Row] = []
    for step in steps:
        count = len(step.response_ids or ())
        ending = msgspec.structs.replace(step, response_mask=[0] * (count - 1) + [1] if count else [])
        arrays = {} if good is None else {GOOD: np.full(count, good[step.step_id], dtype=np.float32)}
        rows_step(rows, ending, 1.0, False, arrays)
    return rows


def _reward(item: BatchItem, step: Step) -> float:
    """The primary one, as it was at the lease where the batch says so."""
    reward = item.rewards.get(step.step_id, {}).get(PRIMARY, step.reward)
    if reward is None:
        raise InvalidRequestError(
            f"step {step.step_id} has no reward", path="step_reward", hint="Absent is not zero: reward every step"
        )
    return reward
