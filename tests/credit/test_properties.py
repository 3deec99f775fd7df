import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentworld.credit import (
    Rollout,
    StepTree,
    chain,
    credit_by_name,
    discounted_returns,
    gae,
    group_relative,
    leave_one_out,
    progress_differences,
    spread,
    total_return,
)
from agentworld.errors import InvalidRequestError
from tests.credit.builders import rollout_lists, trees, values
from tests.examples import examples

shares = st.sampled_from([0.0, 0.5, 0.9, 1.0])
grouped = st.lists(st.tuples(values, st.integers(0, 2)), min_size=1, max_size=12)
forks = st.sampled_from(["mean_over_leaves", "mean_over_children", "max"])
# Every method with parameters under which it reads all that it can.
RULES = [
    ("uniform", {}),
    ("last", {"ends": "last_step"}),
    ("discounted", {"gamma": 0.9}),
    ("progress", {}),
    ("gigpo", {"gamma": 0.9, "divide_by_std": False}),
    ("group_relative", {"divide_by_std": False, "spread": "discounted", "gamma": 0.9}),
    ("group_relative", {"divide_by_std": False, "per_role": True, "role_reward": "own"}),
    ("leave_one_out", {"per_role": True}),
    ("remax", {"spread": "last"}),
    ("reinforce_plus_plus", {"group_mean": True}),
]


@given(grouped, values, st.sampled_from([0.5, 2.0, 10.0]))
def test_group_advantages_sum_to_zero_shift_and_scale(items, shift, scale):
    rewards, groups = zip(*items, strict=True)
    rewards = np.asarray(rewards)
    for advantage in (lambda r: group_relative(r, groups, divide_by_std=False), lambda r: leave_one_out(r, groups)):
        found = advantage(rewards)
        for group in set(groups):
            assert sum(found[[g == group for g in groups]]) == pytest.approx(0.0, abs=1e-9)
        assert advantage(rewards + shift) == pytest.approx(found, abs=1e-9)
        assert advantage(rewards * scale) == pytest.approx(found * scale, abs=1e-9)
    divided = group_relative(rewards, groups)
    for group in set(groups):
        own = rewards[[g == group for g in groups]]
        assume(own.std() == 0 or own.std() > 1e-3)
    # The 1e-6 beside the deviation keeps the scale from cancelling wholly.
    assert group_relative(rewards * 10.0, groups) == pytest.approx(divided, rel=1e-2)


@given(grouped)
def test_leave_one_out_is_group_relative_times_a_constant(items):
    rewards, groups = zip(*items, strict=True)
    sizes = np.asarray([groups.count(group) for group in groups])
    plain = group_relative(rewards, groups, divide_by_std=False)
    assert leave_one_out(rewards, groups) == pytest.approx(plain * sizes / np.maximum(1, sizes - 1), abs=1e-9)


@settings(max_examples=examples(15))
@given(rollout_lists(), st.randoms(use_true_random=False))
def test_the_order_of_rollouts_changes_nothing(rollouts, random):
    order = list(range(len(rollouts)))
    random.shuffle(order)
    for name, parameters in RULES:
        rule = credit_by_name(name, **parameters)
        straight, shuffled = rule(rollouts), rule([rollouts[index] for index in order])
        for place, index in enumerate(order):
            assert shuffled[place] == pytest.approx(straight[index], abs=1e-9), name


@settings(max_examples=examples(15))
@given(rollout_lists(), st.randoms(use_true_random=False))
def test_the_order_of_steps_changes_nothing(rollouts, random):
    """Steps may be numbered in any way, as long as parents and the last step are renumbered with them."""
    renumbered, orders = [], []
    for each in rollouts:
        order = list(range(len(each)))
        random.shuffle(order)
        place = {step: index for index, step in enumerate(order)} | {-1: -1}
        orders.append(order)
        renumbered.append(
            Rollout(
                tree=StepTree([place[int(each.tree.parents[step])] for step in order]),
                lengths=each.lengths[order],
                group=each.group,
                last=place[each.last],
                reward=each.reward,
                step_rewards=each.step_rewards[order],
                states=[each.states[step] for step in order],
                roles=[each.roles[step] for step in order],
                greedy=each.greedy,
            )
        )
    for name, parameters in RULES:
        rule = credit_by_name(name, **parameters)
        for order, mine, theirs in zip(orders, rule(renumbered), rule(rollouts), strict=True):
            assert mine == pytest.approx(theirs[order], abs=1e-9), name


@given(st.lists(st.tuples(values, values), max_size=8), shares, shares, forks)
def test_a_chain_is_the_list(items, gamma, lam, fork):
    """On a chain every convention is the recursion over a list."""
    rewards, before = [r for r, _ in items], [v for _, v in items]
    tree = StepTree(chain(len(items)))
    later, advantage, to_go, advantages, returns = 0.0, 0.0, 0.0, [], []
    for reward, value in reversed(list(zip(rewards, before, strict=True))):
        advantage = reward + gamma * later - value + gamma * lam * advantage
        to_go = reward + gamma * to_go
        later = value
        advantages.insert(0, advantage)
        returns.insert(0, to_go)
    assert gae(tree, rewards, before, gamma=gamma, lam=lam, fork=fork) == pytest.approx(advantages, abs=1e-9)
    assert discounted_returns(tree, rewards, gamma=gamma, fork=fork) == pytest.approx(returns, abs=1e-9)
    assert total_return(tree, rewards, fork) == pytest.approx(sum(rewards), abs=1e-9)
    for how in ("uniform", "last", "discounted"):
        as_tree = spread(2.0, tree, how, gamma=gamma, fork=fork)
        assert as_tree.tolist() == spread(2.0, len(items), how, gamma=gamma).tolist()


@settings(max_examples=examples(40))
@given(rollout_lists(most=1, least_steps=1), st.integers(2, 3), shares, shares, st.data())
def test_copies_of_a_branch_change_nothing_above_it(rollouts, copies, gamma, lam, data):
    """Where every step goes on as `copies` equal branches, its credit is that of the trajectory without them."""
    each = rollouts[0]
    cut = data.draw(st.integers(0, len(each) - 1))
    below = [step for step in range(len(each)) if cut in _path_to(each.tree, step)[:-1]]
    parents, source = each.tree.parents.tolist(), list(range(len(each)))
    for _ in range(copies - 1):
        place = {step: len(parents) + index for index, step in enumerate(below)}
        for step in below:
            parents.append(place.get(parents[step], parents[step]))
            source.append(step)
    tree, rewards = StepTree(parents), each.step_rewards
    first = np.asarray([step for step in range(len(each)) if step == cut or step in below], dtype=np.int64)
    for fork in ("mean_over_leaves", "mean_over_children", "max"):
        plain = discounted_returns(each.tree, rewards, gamma=gamma, fork=fork)
        copied = discounted_returns(tree, rewards[source], gamma=gamma, fork=fork)
        assert copied[first] == pytest.approx(plain[first], abs=1e-9)
        assert copied == pytest.approx(copied[source], abs=1e-9)
        before = np.asarray([float(step) / 3 for step in range(len(each))])
        plain = gae(each.tree, rewards, before, gamma=gamma, lam=lam, fork=fork)
        copied = gae(tree, rewards[source], before[source], gamma=gamma, lam=lam, fork=fork)
        assert copied[first] == pytest.approx(plain[first], abs=1e-9)
    assert progress_differences(tree, rewards[source]) == pytest.approx(
        progress_differences(each.tree, rewards)[source], abs=1e-9
    )


@given(trees(least=1), values)
def test_progress_sums_to_the_whole_on_every_path(parents, initial):
    tree = StepTree(parents)
    after = np.linspace(0.0, 1.0, len(parents))
    steps = progress_differences(tree, after, initial=initial)
    for path in tree.paths():
        assert steps[path].sum() == pytest.approx(after[path[-1]] - initial)


@given(trees(), values, shares, forks)
def test_a_reward_at_every_leaf_is_discounted_by_depth_alone(parents, reward, gamma, fork):
    """With gamma 1 every step has the trajectory's reward, however it forked."""
    tree = StepTree(parents)
    assert spread(reward, tree, "discounted", fork=fork) == pytest.approx([reward] * len(tree))
    found = spread(reward, tree, "discounted", gamma=gamma)
    for step in range(len(tree)):
        depths = [path.tolist().index(leaf) - path.tolist().index(step) for path in tree.paths()
                  for leaf in [path[-1]] if step in path]  # fmt: skip
        assert found[step] == pytest.approx(np.mean([reward * gamma**depth for depth in depths]), abs=1e-9)


def _path_to(tree, step):
    path = [step]
    while tree.parents[path[-1]] >= 0:
        path.append(int(tree.parents[path[-1]]))
    return path[::-1]


@pytest.mark.parametrize("parents", [[1, 0], [0], [-2], [5], [[-1]]])
def test_what_is_no_tree_is_refused(parents):
    with pytest.raises(InvalidRequestError) as error:
        StepTree(parents)
    assert error.value.path == "parents"


def test_parents_may_come_after_their_children():
    tree = StepTree([2, 0, -1])
    assert tree.order == [2, 0, 1]
    assert tree.leaves.tolist() == [1]
    assert [path.tolist() for path in tree.paths()] == [[2, 0, 1]]
    assert discounted_returns(tree, [0.0, 1.0, 0.0], gamma=0.5).tolist() == [0.5, 1.0, 0.25]


@pytest.mark.parametrize("wrong", [[float("nan"), 0.0], [1.0], [[1.0, 2.0]]])
def test_rewards_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidRequestError) as error:
        discounted_returns(StepTree(chain(2)), wrong)
    assert error.value.path == "rewards"
