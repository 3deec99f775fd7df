"""A trajectory as it goes into a batch; the same in every store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentworld.pool.rules import PRIMARY
from agentworld.pool.unit_rules import Member
from agentworld.records import BatchTrajectory, Step, Trajectory


def batch_trajectory(
    trajectory: Trajectory,
    steps: list[Step],
    member: Member,
    rewards: Mapping[str, float],
    arrays: Mapping[str, dict[str, Any]],
) -> BatchTrajectory:
    """The trajectory with the rewards that it had at the lease, its steps, and the arrays on it and on them."""
    trajectory.rewards = dict(rewards)
    trajectory.reward = trajectory.rewards.get(PRIMARY)
    targets = [trajectory.trajectory_id, *(step.step_id for step in steps)]
    return BatchTrajectory(
        trajectory=trajectory,
        steps=steps,
        loss_denominator=sum(sampled_tokens(step) for step in steps),
        trained=member.trained and bool(steps),
        annotations={target: arrays[target] for target in targets if target in arrays},
    )


def sampled_tokens(step: Step) -> int:
    """How many of the step's reply tokens the policy sampled, from the ids that it holds."""
    ids: Sequence[int] | None = step.response_ids
    if ids is None:
        return 0
    return len(ids) if step.response_mask is None else int(np.count_nonzero(np.asarray(step.response_mask) > 0))
