import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.credit import credit_by_name, discounted_returns, gae
from tests.credit import naive
from tests.credit.builders import rollout, rollout_lists, values
from tests.examples import examples

shares = st.sampled_from([0.0, 0.5, 0.9, 1.0])
everywhere = st.sampled_from(["every_leaf", "last_step"])


def agree(found, expected):
    """Within 1e-9, of numbers up to about 1e2; division by a deviation near 0 is compared relatively."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert list(map(float, mine)) == pytest.approx(list(map(float, theirs)), abs=1e-9, rel=1e-9)


@settings(max_examples=examples(40))
@given(rollout_lists(), shares, shares, everywhere, st.booleans(), st.data())
def test_every_method_agrees_with_naive_loops(rollouts, gamma, lam, where, flag, data):
    tree = {"ends": where}
    agree(
        credit_by_name("discounted", gamma=gamma, **tree)(rollouts),
        [naive.returns(each, gamma, where) for each in rollouts],
    )
    initial = data.draw(values)
    for terminal in ("replace", "add", "ignore"):
        agree(
            credit_by_name("progress", initial=initial, terminal=terminal, **tree)(rollouts),
            [naive.progress(each, initial, terminal, where) for each in rollouts],
        )
    agree(credit_by_name("uniform")(rollouts), [[each.reward] * len(each) for each in rollouts])
    agree(
        credit_by_name("last", **tree)(rollouts),
        [naive.spread(each, each.reward, "last", 1, where) for each in rollouts],
    )
    how = data.draw(st.sampled_from(["uniform", "last", "discounted"]))

    def spread(advantages):
        return [
            naive.spread(each, advantage, how, gamma, where)
            for each, advantage in zip(rollouts, advantages, strict=True)
        ]

    groups = [[other.reward for other in rollouts if other.group == each.group] for each in rollouts]
    more = {"spread": how, "gamma": gamma, **tree}
    agree(
        credit_by_name("group_relative", divide_by_std=flag, **more)(rollouts),
        spread([naive.normalised(each.reward, own, flag) for each, own in zip(rollouts, groups, strict=True)]),
    )
    others = [(sum(own) - each.reward) / max(1, len(own) - 1) for each, own in zip(rollouts, groups, strict=True)]
    agree(
        credit_by_name("leave_one_out", **more)(rollouts),
        spread(
            [
                each.reward - other if len(own) > 1 else 0.0
                for each, other, own in zip(rollouts, others, groups, strict=True)
            ]
        ),
    )
    agree(credit_by_name("remax", **more)(rollouts), spread([each.reward - each.greedy for each in rollouts]))
    of_batch = [
        each.reward - naive.mean(own) if flag else each.reward for each, own in zip(rollouts, groups, strict=True)
    ]
    agree(
        credit_by_name("reinforce_plus_plus", group_mean=flag, **more)(rollouts),
        spread([naive.normalised(number, of_batch) for number in of_batch]),
    )


@settings(max_examples=examples(40))
@given(rollout_lists(), shares, st.sampled_from([0.0, 0.3, 2.0]), everywhere, st.booleans())
def test_gigpo_agrees_with_naive_loops(rollouts, gamma, omega, where, per_role):
    rule = credit_by_name("gigpo", omega=omega, gamma=gamma, divide_by_std=False, per_role=per_role, ends=where)
    agree(rule(rollouts), naive.gigpo(rollouts, omega, gamma, False, per_role, where))


@settings(max_examples=examples(25))
@given(rollout_lists(), st.sampled_from([0.5, 1.0]))
def test_gigpo_divided_by_the_deviation_agrees(rollouts, gamma):
    # Returns that are equal but for rounding would differ by it over 1e-6: with rewards on a grid of quarters and these
    # discounts sums are exact, and means over leaves are avoided by chains.
    for each in rollouts:
        each.step_rewards[:] = np.round(each.step_rewards)
    exact = [
        rollout(
            reward=float(round(each.reward)),
            steps=len(each),
            step_rewards=each.step_rewards,
            states=each.states,
            group=each.group,
        )
        for each in rollouts
    ]
    agree(credit_by_name("gigpo", gamma=gamma)(exact), naive.gigpo(exact, 1.0, gamma))


@settings(max_examples=examples(40))
@given(rollout_lists(), shares, shares, everywhere)
def test_time_over_tokens_agrees_with_naive_loops(rollouts, gamma, lam, where):
    found = credit_by_name("gae", gamma=gamma, lam=lam, per="token", ends=where)(rollouts)
    for mine, each in zip(found.values, rollouts, strict=True):
        agree(mine, naive.gae_of_tokens(each, gamma, lam, where))
    found = credit_by_name("discounted", gamma=gamma, per="token", ends=where)(rollouts)
    for mine, each in zip(found.values, rollouts, strict=True):
        agree(mine, naive.gae_of_tokens(each, gamma, 1.0, where, zero=True))


@settings(max_examples=examples(40))
@given(rollout_lists(), shares, shares, everywhere, st.data())
def test_gae_of_steps_agrees_with_naive_loops(rollouts, gamma, lam, where, data):
    for each in rollouts:
        each.values[:] = [np.asarray([data.draw(values)]) for _ in each.values]
    agree(
        credit_by_name("gae", gamma=gamma, lam=lam, ends=where)(rollouts),
        [naive.gae(each, gamma, lam, where) for each in rollouts],
    )


@settings(max_examples=examples(40))
@given(rollout_lists(), st.sampled_from(["group_relative", "leave_one_out", "reinforce_plus_plus"]))
def test_roles_are_judged_among_their_own(rollouts, method):
    inherit = [
        (each.group, role, each.reward, index)
        for index, each in enumerate(rollouts)
        for role in sorted(set(each.roles))
    ]
    tops = [naive.runs_of_roles(each) for each in rollouts]
    own = [
        (
            each.group,
            each.roles[top],
            sum(each.step_rewards[s] for s, t in enumerate(tops[index]) if t == top),
            index,
            top,
        )
        for index, each in enumerate(rollouts)
        for top in sorted(set(tops[index]))
    ]
    more = {} if method == "leave_one_out" else {"group_mean": True}
    if method == "group_relative":
        more = {"divide_by_std": False}

    def judged(members, mine):
        same = [other[2] for other in members if other[:2] == mine[:2]]
        if method == "leave_one_out":
            return 0.0 if len(same) == 1 else mine[2] - (sum(same) - mine[2]) / (len(same) - 1)
        if method == "group_relative":
            return mine[2] - naive.mean(same)
        centred = [
            other[2] - naive.mean([one[2] for one in members if one[:2] == other[:2]])
            for other in members
            if other[1] == mine[1]
        ]
        deviation = naive.mean([number**2 for number in centred]) ** 0.5
        return 0.0 if deviation < 1e-9 else (mine[2] - naive.mean(same)) / (deviation + 1e-6)

    of_inherit = {(member[3], member[1]): judged(inherit, member) for member in inherit}
    of_own = {(member[3], member[4]): judged(own, member) for member in own}
    found = credit_by_name(method, per_role=True, **more)(rollouts)
    for index, each in enumerate(rollouts):
        expected = [of_inherit[index, role] for role in each.roles]
        assert found[index].tolist() == pytest.approx(expected, abs=1e-9, rel=1e-7)
    found = credit_by_name(method, per_role=True, role_reward="own", **more)(rollouts)
    for index in range(len(rollouts)):
        expected = [of_own[index, top] for top in tops[index]]
        assert found[index].tolist() == pytest.approx(expected, abs=1e-9, rel=1e-7)


def test_the_conventions_of_forks_by_hand():
    # 0 -> 1 and 0 -> 2; 2 -> 3 and 2 -> 4; leaves 1, 3, 4.
    each = rollout(reward=None, parents=[-1, 0, 0, 2, 2], step_rewards=[1.0, 6.0, 0.0, 2.0, 4.0])
    of = {
        fork: discounted_returns(each.tree, each.step_rewards, gamma=0.5, fork=fork).tolist()
        for fork in ("mean_over_leaves", "mean_over_children", "max")
    }
    assert of["mean_over_leaves"] == pytest.approx([1 + 0.5 * (6 + 1.5 + 1.5) / 3, 6, 1.5, 2, 4])
    assert of["mean_over_children"] == pytest.approx([1 + 0.5 * (6 + 1.5) / 2, 6, 1.5, 2, 4])
    assert of["max"] == pytest.approx([1 + 0.5 * 6, 6, 2, 2, 4])


def test_a_truncated_end_is_worth_what_follows_it():
    tree = rollout(steps=2).tree
    ended = gae(tree, [0.0, 1.0], [0.5, 0.5], gamma=0.9, lam=0.8)
    cut_off = gae(tree, [0.0, 1.0], [0.5, 0.5], gamma=0.9, lam=0.8, bootstrap=[0.0, 2.0])
    assert ended[1] == pytest.approx(0.5)
    assert cut_off[1] == pytest.approx(0.5 + 0.9 * 2.0)
    assert cut_off[0] - ended[0] == pytest.approx(0.9 * 0.8 * 0.9 * 2.0)


def test_states_are_compared_across_rollouts_and_within_their_group():
    def run(reward, states, group="g"):
        return rollout(reward, len(states), states=states, group=group)

    rule = credit_by_name("gigpo", gamma=1.0, divide_by_std=False)
    found = rule([run(1.0, ["door", "key"]), run(0.0, ["door", "wall"]), run(5.0, ["door"], "other")])
    assert [each.tolist() for each in found] == [[1.0, 0.5], [-1.0, -0.5], [0.0]]


def test_a_rollout_without_steps_counts_in_its_group():
    rollouts = [rollout(1.0, 1, states=["x"]), rollout(0.0, 0, states=[])]
    for method in ("group_relative", "gigpo"):
        found = credit_by_name(method, divide_by_std=False)(rollouts)
        assert [each.tolist() for each in found] == [[0.5], []]


def test_a_role_that_does_not_end_the_trajectory_has_its_own_last_step():
    def run(reward):
        return rollout(reward, 4, roles=["a", "b", "b", "a"])

    more = {"divide_by_std": False, "per_role": True, "spread": "last", "ends": "last_step"}
    found = credit_by_name("group_relative", **more)([run(1.0), run(0.0)])
    assert [each.tolist() for each in found] == [[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, -0.5, -0.5]]
