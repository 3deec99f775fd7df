import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import ConfigError
from agentworld.merge import build_tree
from agentworld.trainers.minibatches import flat_weights, plan_updates, token_weights
from agentworld.trainers.parts import chosen_parts, flat_parts, merged_parts
from agentworld.trainers.rows import Row
from tests.trainers.builders import SHAPE


def row(length, trained, trajectory_tokens=None, name="t", ids=None, heat=0.7):
    mask = np.zeros(length, bool)
    mask[length - trained :] = True
    numbers = np.arange(1, length + 1) if ids is None else np.asarray(ids)
    return Row(name, numbers, mask, -mask.astype("f4"), mask.astype("f4"), heat, trajectory_tokens or trained)


shapes = st.lists(
    st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), min_size=1, max_size=12
)


@given(shapes, st.integers(1, 80), st.sampled_from([1, 2, 3]), st.booleans())
def test_parts_hold_every_row_once_within_the_budget(shapes, tokens, together, merge):
    rows = [row(*shape) for shape in shapes]
    units = [rows[first : first + together] for first in range(0, len(rows), together)]
    parts = merged_parts(units, tokens) if merge else flat_parts(units, tokens)
    assert sorted(place for part in parts for place in part.units) == list(range(len(units)))
    for part in parts:
        assert [id(each) for each in part.rows] == [id(each) for place in part.units for each in units[place]]
        assert part.sizes == tuple(len(units[place]) for place in part.units)
        budget = max(tokens, max(map(len, part.rows)))
        assert part.tokens <= budget or len(part.units) == 1
        if part.tree is not None:
            assert len(part.tree.tokens) == len(build_tree([each.ids for each in part.rows]).tokens)


@given(shapes, st.sampled_from(["token_mean", "trajectory_mean"]))
def test_means_sum_to_one(shapes, aggregation):
    rows = [row(*shape) for shape in shapes]
    assert sum(float(each.sum()) for each in flat_weights(rows, aggregation)) == pytest.approx(1.0)


def test_trajectories_count_the_same_however_they_are_split():
    split = [row(4, 2, 4, "a"), row(4, 2, 4, "a"), row(9, 8, 8, "b")]
    weights = token_weights(split, "trajectory_mean")
    assert weights[0] * 2 + weights[1] * 2 == pytest.approx(0.5)
    assert weights[2] * 8 == pytest.approx(0.5)
    assert token_weights(split, "token_mean") == [1 / 12] * 3
    assert token_weights(split, "trajectory_sum") == [1 / 2] * 3
    assert token_weights(split, "constant", 100) == [1 / 200] * 3
    with pytest.raises(ConfigError, match="median"):
        token_weights(split, "median")


def test_factors_and_conventions_multiply_what_a_token_weighs():
    rows = [row(4, 3, ids=[1, 2, 3, 4]), row(4, 3, ids=[1, 2, 3, 5]), row(4, 3, ids=[1, 2, 3, 4], heat=1.0)]
    for number, each in enumerate(rows):
        each.arrays["gate"] = np.full(4, number + 1.0, np.float32)
    plain = np.concatenate(flat_weights(rows, "trajectory_sum", factors="gate"))
    assert plain.tolist() == [0, 1, 1, 1, 0, 2, 2, 2, 0, 3, 3, 3]
    mean = np.concatenate(flat_weights(rows, "trajectory_sum", factors="gate", shared="mean"))
    # Rows of another temperature share nothing with these.
    assert mean.tolist() == [0, 0.5, 0.5, 1, 0, 1, 1, 2, 0, 3, 3, 3]
    first = np.concatenate(flat_weights(rows, "trajectory_sum", shared="first_path"))
    assert first.tolist() == [0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1]


def test_merging_is_taken_where_it_costs_less():
    stem = list(range(1, 400))
    shared = [[row(500, 50, ids=[*stem, *range(own * 101, own * 101 + 101)])] for own in range(5, 11)]
    alone = [[row(500, 50, ids=range(own * 500, own * 500 + 500))] for own in range(6)]
    for units, merged in ((shared, True), (alone, False)):
        parts = chosen_parts(units, "auto", 4096, None, SHAPE)
        assert {part.tree is not None for part in parts} == {merged}
        assert all(part.tree is not None for part in chosen_parts(units, "on", 4096, None, SHAPE))
        assert all(part.tree is None for part in chosen_parts(units, "off", 4096, None, SHAPE))
        assert all(part.tree is None for part in chosen_parts(units, "on", 4096, None, None))
    assert sum(part.tokens for part in chosen_parts(shared, "on", 4096, None, SHAPE)) == 399 + 6 * 101
    # A budget of pairs divides what one of tokens would leave whole.
    assert len(merged_parts(shared, 4096, 200_000)) > 1


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 10), st.integers(0, 5))
def test_a_plan_passes_over_every_row_in_each_epoch(count, epochs, size, seed):
    units = [[row(3, 1, name=str(number))] for number in range(count)]
    plan = plan_updates(units, epochs=epochs, rows_per_update=size, generator=np.random.default_rng(seed))
    names = [each.trajectory_id for update in plan for unit in update for each in unit]
    assert sorted(names) == sorted([unit[0].trajectory_id for unit in units] * epochs)
    assert sorted(names[:count]) == sorted(unit[0].trajectory_id for unit in units)
    again = plan_updates(units, epochs=epochs, rows_per_update=size, generator=np.random.default_rng(seed))
    assert [id(unit) for update in again for unit in update] == [id(unit) for update in plan for unit in update]
