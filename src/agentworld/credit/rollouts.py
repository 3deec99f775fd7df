"""What a credit method is given of one trajectory, and the members that it is normalised among."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from agentworld.credit.steps import spread
from agentworld.credit.trees import Ends, FloatArray, Fork, IntArray, StepTree
from agentworld.errors import InvalidRequestError

# What a role of a trajectory is judged by. inherit: the trajectory's reward. own: the sum of its own steps' rewards.
RoleReward = Literal["inherit", "own"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rollout:
    """One trajectory of n steps.

    `group`: the rollouts of one task have the same. `tree`: which step continues which. `last`: index of the last step.
    `reward`: of the trajectory, at its end. `step_rewards` float64 [n]. `lengths` int64 [n]: sampled tokens. `states`:
    of each step what it was sampled in; equal where the state is the same. `roles`: of each step who acted. `values`:
    of each step the value before it, an array [1], or before each sampled token, an array [lengths[s]]. `bootstrap`
    float64 [n]: of leaves that were cut off the value after them, else 0. `greedy`: the reward of the greedy rollout of
    the same task. What nobody gave is None; a method that needs it refuses by name.
    """

    tree: StepTree
    lengths: IntArray
    group: Hashable = None
    last: int = -1
    name: str = ""
    reward: float | None = None
    step_rewards: FloatArray | None = None
    states: Sequence[Hashable] | None = None
    roles: Sequence[Hashable] | None = None
    values: Sequence[FloatArray] | None = None
    bootstrap: FloatArray | None = None
    greedy: float | None = None

    def __len__(self) -> int:
        return len(self.tree)

    def need_reward(self) -> float:
        """The trajectory's reward; refused where there is none."""
        if self.reward is None:
            raise missing(self, "reward")
        return self.reward

    def all_rewards(self, ends: Ends) -> FloatArray:
        """The rewards of the steps with the trajectory's at its ends, float64 [n]; refused where there is neither."""
        if self.reward is None and self.step_rewards is None:
            raise missing(self, "reward", "step_reward")
        total = np.zeros(len(self)) if self.step_rewards is None else self.step_rewards.astype(np.float64)
        if self.reward is not None:
            total[self.tree.ends(ends, self.last)] += self.reward
        return total


def missing(rollout: Rollout, *names: str) -> InvalidRequestError:
    """The refusal of a rollout that lacks what a method needs."""
    what = " and ".join(f"no {name}" for name in names)
    return InvalidRequestError(
        f"trajectory {rollout.name or rollout.group} has {what}",
        path=names[0],
        hint="Absent is not zero: put it on the trajectory, or name in the credit's settings where it is",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """Steps of one rollout that are judged together, the reward that they are judged by, and whom they compete with."""

    rollout: int
    steps: IntArray
    reward: float
    group: Hashable
    tree: StepTree = field(repr=False)


def members_of(rollouts: Sequence[Rollout], *, per_role: bool, role_reward: RoleReward) -> list[Member]:
    """Whole rollouts, or with `per_role` each role of each rollout, which competes with the same role of its group.

    inherit: each role of a rollout is one member with the rollout's reward. own: each run of a role, which is what
    hangs together in the tree without a step of another role between, is a member with the sum of its steps' rewards.
    A rollout without steps counts too, as one that failed at once, but has no role.
    """
    found: list[Member] = []
    for index, rollout in enumerate(rollouts):
        if not per_role:
            every = np.arange(len(rollout), dtype=np.int64)
            found.append(Member(index, every, rollout.need_reward(), rollout.group, rollout.tree))
            continue
        if rollout.roles is None:
            raise missing(rollout, "roles")
        tree = rollout.tree.cut(rollout.roles)
        tops = tree.roots().tolist()
        parts: dict[Hashable, list[int]] = {}
        for step, role in enumerate(rollout.roles):
            parts.setdefault(role if role_reward == "inherit" else (tops[step], role), []).append(step)
        for steps in parts.values():
            own = np.asarray(steps, dtype=np.int64)
            if role_reward == "inherit":
                reward = rollout.need_reward()
            elif rollout.step_rewards is None:
                raise missing(rollout, "step_reward")
            else:
                reward = float(rollout.step_rewards[own].sum())
            found.append(Member(index, own, reward, (rollout.group, rollout.roles[steps[0]]), tree))
    return found


def spread_members(
    rollouts: Sequence[Rollout],
    members: Sequence[Member],
    advantages: Sequence[float] | FloatArray,
    *,
    how: str,
    gamma: float,
    fork: Fork,
    ends: Ends,
) -> list[FloatArray]:
    """Each member's advantage over its steps (see `spread`); one array [n] a rollout."""
    credits = [np.zeros(len(rollout)) for rollout in rollouts]
    for member, advantage in zip(members, advantages, strict=True):
        if not len(member.steps):
            continue
        last = rollouts[member.rollout].last % len(rollouts[member.rollout])
        last = last if last in member.steps else int(member.steps[-1])
        spread_out = spread(float(advantage), member.tree, how, gamma=gamma, fork=fork, ends=ends, last=last)
        credits[member.rollout][member.steps] = spread_out[member.steps]
    return credits
