"""The credit methods that are here, each with its parameters. docs/credit.md has their formulas in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from agentworld.credit.advantages import batch_relative, greedy_relative, group_relative, leave_one_out
from agentworld.credit.registry import Credits, Need, TokenCredits, credit_method
from agentworld.credit.returns import (
    discounted_returns,
    discounted_returns_tokens,
    gae_tokens,
    progress_differences,
    total_return,
)
from agentworld.credit.rollouts import Member, RoleReward, Rollout, members_of, missing, spread_members
from agentworld.credit.steps import Spread
from agentworld.credit.trees import Ends, FloatArray, Fork
from agentworld.errors import InvalidRequestError

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


class OnTrees(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`fork`: what a step sees of several continuations. `ends`: where the trajectory's reward comes."""

    fork: Fork = "mean_over_leaves"
    ends: Ends = "every_leaf"


class SpreadParameters(OnTrees, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`spread`: how an advantage is spread over the steps; `gamma` a step where that is discounted."""

    spread: Spread = "uniform"
    gamma: Share = 1.0


class PerRole(SpreadParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`per_role`: each role is normalised among its own in the group. `role_reward`: what a role is judged by."""

    per_role: bool = False
    role_reward: RoleReward = "inherit"


class GroupRelative(PerRole, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`divide_by_std`: by the standard deviation of the group's rewards."""

    divide_by_std: bool = True


class BatchRelative(PerRole, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`group_mean`: first take each group's mean away."""

    group_mean: bool = False


class Discounted(OnTrees, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`gamma`: the discount, `per` step or per sampled token."""

    gamma: Share = 1.0
    per: Literal["step", "token"] = "step"


class Gae(OnTrees, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`gamma` and `lam` of generalised advantage estimation, `per` step or per sampled token."""

    gamma: Share = 1.0
    lam: Share = 0.95
    per: Literal["step", "token"] = "step"


class Progress(OnTrees, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`initial`: the value before the first step. `terminal`: the trajectory's reward takes the place of the value at
    its ends (replace), comes on top of the difference there (add), or is left out (ignore).
    """

    initial: float = 0.0
    terminal: Literal["replace", "add", "ignore"] = "replace"


class Gigpo(OnTrees, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`omega`: weight of the advantage among equal states. `gamma`: of the return-to-go. `divide_by_std`: at both
    levels. `per_role`: roles compete with their own, at both levels.
    """

    omega: Weight = 1.0
    gamma: Share = 0.95
    divide_by_std: bool = True
    per_role: bool = False


def _roles(parameters: PerRole | Gigpo) -> tuple[Need, ...]:
    return ("roles",) if parameters.per_role else ()


def _of_members(
    rollouts: Sequence[Rollout], parameters: PerRole, advantages: Callable[[list[Member]], FloatArray]
) -> list[FloatArray]:
    members = members_of(rollouts, per_role=parameters.per_role, role_reward=parameters.role_reward)
    return _spread(rollouts, members, advantages(members), parameters)


def _spread(
    rollouts: Sequence[Rollout], members: list[Member], advantages: FloatArray, parameters: SpreadParameters
) -> list[FloatArray]:
    return spread_members(
        rollouts,
        members,
        advantages,
        how=parameters.spread,
        gamma=parameters.gamma,
        fork=parameters.fork,
        ends=parameters.ends,
    )


def _rewards(members: list[Member]) -> list[float]:
    return [member.reward for member in members]


@credit_method("uniform")
def uniform(rollouts: Sequence[Rollout], parameters: object) -> Credits:
    """c_s = R: every step has the trajectory's reward, without a baseline."""
    return [np.full(len(rollout), rollout.need_reward()) for rollout in rollouts]


@credit_method("last", OnTrees)
def last(rollouts: Sequence[Rollout], parameters: OnTrees) -> Credits:
    """c_s = R at the trajectory's ends, else 0, without a baseline."""
    how = SpreadParameters(spread="last", fork=parameters.fork, ends=parameters.ends)
    members = members_of(rollouts, per_role=False, role_reward="inherit")
    return _spread(rollouts, members, np.asarray(_rewards(members)), how)


@credit_method("discounted", Discounted)
def discounted(rollouts: Sequence[Rollout], parameters: Discounted) -> Credits:
    """G_s = r_s + gamma * G_next, of the rewards of steps and of the trajectory's at its ends."""
    rewards = [rollout.all_rewards(parameters.ends) for rollout in rollouts]
    gamma, fork = parameters.gamma, parameters.fork
    if parameters.per == "token":
        return TokenCredits(
            [
                discounted_returns_tokens(rollout.tree, own, rollout.lengths, gamma=gamma, fork=fork)
                for rollout, own in zip(rollouts, rewards, strict=True)
            ]
        )
    return [
        discounted_returns(rollout.tree, own, gamma=gamma, fork=fork)
        for rollout, own in zip(rollouts, rewards, strict=True)
    ]


@credit_method("progress", Progress)
def progress(rollouts: Sequence[Rollout], parameters: Progress) -> Credits:
    """c_s = V_s - V_parent(s), of the step rewards as values, with the trajectory's reward at its ends."""
    found: list[FloatArray] = []
    for rollout in rollouts:
        if rollout.step_rewards is None:
            raise missing(rollout, "step_reward")
        values = rollout.step_rewards.astype(np.float64)
        ends = rollout.tree.ends(parameters.ends, rollout.last)
        if parameters.terminal == "replace":
            values[ends] = rollout.need_reward()
        credits = progress_differences(rollout.tree, values, initial=parameters.initial)
        if parameters.terminal == "add":
            credits[ends] += rollout.need_reward()
        found.append(credits)
    return found


@credit_method("gigpo", Gigpo, needs=lambda parameters: ("states", *_roles(parameters)))
def gigpo(rollouts: Sequence[Rollout], parameters: Gigpo) -> Credits:
    """A_s = A_episode + omega * A_step, of Feng et al. 2025 (arXiv:2505.10978).

    A_episode is group-relative over the rollouts' total rewards, A_step over the discounted returns-to-go of all steps
    of the group that were sampled in the same state, whichever rollout they belong to. With `per_role` the episode's
    advantage is among the rollouts of the group in which the role acts, the step's among steps of that role.
    """
    rewards = [rollout.all_rewards(parameters.ends) for rollout in rollouts]
    returns: list[FloatArray] = []
    totals: list[float] = []
    states: list[object] = []
    episodes: list[tuple[int, object]] = []
    for index, (rollout, own) in enumerate(zip(rollouts, rewards, strict=True)):
        if rollout.states is None:
            raise missing(rollout, "state")
        if parameters.per_role and rollout.roles is None:
            raise missing(rollout, "roles")
        roles = rollout.roles if parameters.per_role and rollout.roles is not None else [None] * len(rollout)
        returns.append(discounted_returns(rollout.tree, own, gamma=parameters.gamma, fork=parameters.fork))
        totals.append(total_return(rollout.tree, own, parameters.fork) if len(rollout) else rollout.reward or 0.0)
        states.extend((rollout.group, role, state) for role, state in zip(roles, rollout.states, strict=True))
        episodes.extend((index, role) for role in roles)
    without_steps = [] if parameters.per_role else [(index, None) for index in range(len(rollouts))]
    every: list[tuple[int, object]] = list(dict.fromkeys([*episodes, *without_steps]))
    groups = [(rollouts[index].group, role) for index, role in every]
    by_std = parameters.divide_by_std
    episode = group_relative([totals[index] for index, _ in every], groups, divide_by_std=by_std)
    of_episode = dict(zip(every, episode.tolist(), strict=True))
    all_returns = np.concatenate(returns) if returns else np.zeros(0)
    step = group_relative(all_returns, states, divide_by_std=by_std)
    combined = np.asarray([of_episode[each] for each in episodes]) + parameters.omega * step
    return np.split(combined, np.cumsum([len(rollout) for rollout in rollouts])[:-1]) if rollouts else []


@credit_method("gae", Gae, needs=("values",))
def generalised(rollouts: Sequence[Rollout], parameters: Gae) -> Credits:
    """A_s = delta_s + gamma * lam * A_next, where values exist (arXiv:1506.02438, equation 16)."""
    found: list[list[FloatArray]] = []
    for rollout in rollouts:
        if rollout.values is None:
            raise missing(rollout, "values")
        rewards = rollout.all_rewards(parameters.ends)
        values, lengths = rollout.values, rollout.lengths
        if parameters.per == "step":
            lengths = np.ones(len(rollout), dtype=np.int64)
            if any(len(own) == 0 for own in values):
                raise missing(rollout, "values")
            values = [own[:1] for own in values]
        elif [len(own) for own in values] != lengths.tolist():
            raise InvalidRequestError(
                f"trajectory {rollout.name} has no value for each sampled token",
                path="values",
                hint='Annotate steps with one value a token, or use per = "step"',
            )
        found.append(
            gae_tokens(
                rollout.tree,
                rewards,
                values,
                lengths,
                gamma=parameters.gamma,
                lam=parameters.lam,
                bootstrap=rollout.bootstrap,
                fork=parameters.fork,
            )
        )
    if parameters.per == "token":
        return TokenCredits(found)
    return [np.concatenate(own) if own else np.zeros(0) for own in found]


@credit_method("group_relative", GroupRelative, needs=_roles)
def relative(rollouts: Sequence[Rollout], parameters: GroupRelative) -> Credits:
    """A = (R - mean) / std over the group (GRPO), or without the division (Dr. GRPO), spread over the steps."""
    return _of_members(
        rollouts,
        parameters,
        lambda members: group_relative(
            _rewards(members), [member.group for member in members], divide_by_std=parameters.divide_by_std
        ),
    )


@credit_method("leave_one_out", PerRole, needs=_roles)
def one_out(rollouts: Sequence[Rollout], parameters: PerRole) -> Credits:
    """A = R - mean of the others of the group (RLOO), spread over the steps."""
    return _of_members(
        rollouts,
        parameters,
        lambda members: leave_one_out(_rewards(members), [member.group for member in members]),
    )


@credit_method("remax", SpreadParameters, needs=("greedy",))
def remax(rollouts: Sequence[Rollout], parameters: SpreadParameters) -> Credits:
    """A = R - the reward of the greedy rollout of the same task (ReMax), spread over the steps."""
    members = members_of(rollouts, per_role=False, role_reward="inherit")
    baselines = []
    for member in members:
        greedy = rollouts[member.rollout].greedy
        if greedy is None:
            raise missing(rollouts[member.rollout], "baseline_reward")
        baselines.append(greedy)
    return _spread(rollouts, members, greedy_relative(_rewards(members), baselines), parameters)


@credit_method("reinforce_plus_plus", BatchRelative, needs=_roles)
def batch_normalised(rollouts: Sequence[Rollout], parameters: BatchRelative) -> Credits:
    """A = (R - mean) / std over the batch (REINFORCE++), spread over the steps.

    With `per_role` the statistics are those of the role over the batch.
    """
    members = members_of(rollouts, per_role=parameters.per_role, role_reward=parameters.role_reward)
    by_role: dict[object, list[int]] = {}
    for index, member in enumerate(members):
        role = member.group[1] if parameters.per_role and isinstance(member.group, tuple) else None
        by_role.setdefault(role, []).append(index)
    advantages = np.zeros(len(members))
    for indices in by_role.values():
        own = [members[index] for index in indices]
        groups = [member.group for member in own] if parameters.group_mean else None
        advantages[indices] = batch_relative(_rewards(own), groups)
    return _spread(rollouts, members, advantages, parameters)
