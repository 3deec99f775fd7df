"""A trajectory as it goes into a batch; the same in every store."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from agentworld.pool.rules import PRIMARY
from agentworld.pool.unit_rules import Member
from agentworld.records import BatchTrajectory, BatchUnit, Step, Trajectory, Unit

Rewards = Mapping[str, Mapping[str, float]]


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


def kept_unit(unit: Unit, members: Sequence[Member], rewards: Rewards) -> dict[str, Any]:
    """What a batch keeps of a unit, as JSON: rewards by target, and under "" which trajectories or steps went with it,
    where its key does not say so. No target has an empty id.
    """
    if unit in ("step", "trajectory"):
        return dict(rewards)
    steps = [member.step_id for member in members if member.step_id is not None]
    return {**rewards, "": {"steps": steps} if steps else {"trajectories": [each.trajectory_id for each in members]}}


def batch_unit(unit: Unit, key: str, kept: Mapping[str, Any]) -> BatchUnit:
    """The record of what `kept_unit` gave."""
    rewards = {target: values for target, values in kept.items() if target}
    if unit == "step":
        return BatchUnit(key=key, rewards=rewards, steps=(key,))
    if unit == "trajectory":
        return BatchUnit(key=key, rewards=rewards, trajectories=(key,))
    named = kept.get("", {})
    return BatchUnit(
        key=key,
        rewards=rewards,
        trajectories=tuple(named.get("trajectories", ())),
        steps=tuple(named.get("steps", ())),
    )


def without_targets(kept: Mapping[str, Any], gone: Container[str]) -> dict[str, Any]:
    """What is left of `kept_unit` where targets were deleted on request."""
    left = {target: values for target, values in kept.items() if target not in gone}
    if "" in left:
        left[""] = {kind: [each for each in ids if each not in gone] for kind, ids in left[""].items()}
    return left


def sampled_tokens(step: Step) -> int:
    """How many of the step's reply tokens the policy sampled, from the ids that it holds."""
    ids: Sequence[int] | None = step.response_ids
    if ids is None:
        return 0
    mask: Any = step.response_mask
    if isinstance(mask, list):
        return len(mask) - mask.count(0)  # A mask holds 0 and 1 alone.
    return len(ids) if mask is None else int(np.count_nonzero(np.asarray(mask) > 0))
