import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.credit import equal_groups, group_relative, spread, to_tokens
from agentworld.credit.advantages import batch_relative, greedy_relative, leave_one_out
from agentworld.errors import InvalidRequestError

values = st.floats(-1e3, 1e3, allow_nan=False).map(lambda value: round(value, 3))
rollouts = st.lists(st.tuples(values, st.integers(0, 3)), min_size=1, max_size=20)


def test_the_formula():
    advantages = group_relative([1.0, 0.0, 0.0, 5.0], ["a", "a", "a", "b"])
    std = np.std([1.0, 0.0, 0.0])
    scale = std + 1e-6
    assert advantages.tolist() == pytest.approx([2 / 3 / scale, -1 / 3 / scale, -1 / 3 / scale, 0.0])
    assert group_relative([1.0, 0.0], ["a", "a"], divide_by_std=False).tolist() == [0.5, -0.5]


@given(rollouts, st.booleans())
def test_advantages_of_a_group_sum_to_zero(items, divide):
    rewards, groups = zip(*items, strict=True)
    advantages = group_relative(rewards, groups, divide_by_std=divide)
    for group in set(groups):
        own = [a for a, g in zip(advantages, groups, strict=True) if g == group]
        assert sum(own) == pytest.approx(0.0, abs=1e-6 * max(1.0, max(map(abs, own))) * len(own))


@given(rollouts, values)
def test_adding_to_every_reward_of_a_group_changes_nothing(items, shift):
    rewards, groups = zip(*items, strict=True)
    moved = group_relative([r + shift for r in rewards], groups, divide_by_std=False)
    assert moved == pytest.approx(group_relative(rewards, groups, divide_by_std=False), abs=1e-6)


@given(rollouts, st.randoms(use_true_random=False))
def test_the_order_of_rollouts_does_not_matter(items, random):
    order = list(range(len(items)))
    random.shuffle(order)
    rewards, groups = zip(*items, strict=True)
    straight = group_relative(rewards, groups)
    shuffled = group_relative([rewards[i] for i in order], [groups[i] for i in order])
    assert shuffled == pytest.approx(straight[order], rel=1e-6, abs=1e-9)


@given(rollouts)
def test_groups_with_equal_rewards_have_no_advantage(items):
    rewards, groups = zip(*items, strict=True)
    advantages = group_relative(rewards, groups)
    equal = equal_groups(rewards, groups)
    for advantage, group in zip(advantages, groups, strict=True):
        if group in equal:
            assert advantage == 0.0


@given(rollouts, st.integers(400, 1000))
def test_very_large_rewards_have_the_advantages_of_their_proportions(items, power):
    rewards, groups = zip(*items, strict=True)
    large = np.ldexp(np.asarray(rewards), power)
    for method in (leave_one_out, functools.partial(group_relative, divide_by_std=False)):
        assert np.ldexp(method(large, groups), -power) == pytest.approx(method(rewards, groups), abs=1e-9)
    exact = np.zeros(len(rewards))
    for group in set(groups):
        at = [place for place, other in enumerate(groups) if other == group]
        own = np.asarray(rewards)[at]
        if (own != own[0]).any():
            exact[at] = (own - own.mean()) / own.std()
    assert group_relative(large, groups) == pytest.approx(exact, abs=1e-6)


def test_the_largest_rewards():
    assert group_relative([1e200, -1e200], ["a", "a"]).tolist() == [1.0, -1.0]
    assert group_relative([1e308, -1e308, 1e308], ["a"] * 3) == pytest.approx([0.5**0.5, -(2**0.5), 0.5**0.5])
    assert batch_relative([1e308, 1e308, -1e308, -1e308]).tolist() == [1.0, 1.0, -1.0, -1.0]
    assert leave_one_out([1e308, 1e308, -5e307, 5e307], ["a"] * 4) == pytest.approx(
        [2 / 3 * 1e308, 2 / 3 * 1e308, -4 / 3 * 1e308, 0]
    )
    assert group_relative([1e308, 1e308], ["a", "a"]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "method",
    [
        lambda: leave_one_out([1.5e308, -1.5e308], ["a", "a"]),
        lambda: group_relative([1.7e308, -1.7e308, -1.7e308], ["a"] * 3, divide_by_std=False),
        lambda: greedy_relative([1.5e308], [-1.5e308]),
    ],
)
def test_differences_that_no_float_holds_are_refused(method):
    with pytest.raises(InvalidRequestError, match="more than a float can hold") as error:
        method()
    assert error.value.path == "rewards"


@pytest.mark.parametrize(("rewards", "groups"), [([1.0], []), ([float("nan")], ["a"]), ([[1.0]], ["a"])])
def test_what_makes_no_sense_is_refused(rewards, groups):
    with pytest.raises(InvalidRequestError) as error:
        group_relative(rewards, groups)
    assert error.value.path == "rewards"


def test_credit_over_steps_and_tokens():
    assert spread(2.0, 3).tolist() == [2.0, 2.0, 2.0]
    assert spread(2.0, 3, "last").tolist() == [0.0, 0.0, 2.0]
    assert spread(2.0, 0, "last").tolist() == []
    assert to_tokens([1.0, -1.0], [2, 3]).tolist() == [1.0, 1.0, -1.0, -1.0, -1.0]
    with pytest.raises(InvalidRequestError):
        spread(1.0, 2, "middle")
