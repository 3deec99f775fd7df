import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import ConfigError
from agentworld.trainers.minibatches import micro_batches, plan_updates, token_weights
from agentworld.trainers.rows import Row


def row(length, trained, trajectory_tokens=None, name="t"):
    mask = np.zeros(length, bool)
    mask[length - trained :] = True
    numbers = np.arange(1, length + 1)
    return Row(name, numbers, mask, -mask.astype("f4"), mask.astype("f4"), 0.7, trajectory_tokens or trained)


shapes = st.lists(
    st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), min_size=1, max_size=12
)


@given(shapes, st.integers(1, 80), st.sampled_from(["token_mean", "trajectory_mean"]))
def test_micro_batches_hold_every_row_once_with_weights_that_sum_to_one(shapes, tokens, aggregation):
    rows = [row(*shape) for shape in shapes]
    micros = micro_batches(rows, tokens=tokens, aggregation=aggregation)
    assert sorted(int((ids > 0).sum()) for micro in micros for ids in micro.ids) == sorted(map(len, rows))
    assert sum(float(micro.weights.sum()) for micro in micros) == pytest.approx(1.0, abs=1e-5)
    for micro in micros:
        assert micro.ids.size <= tokens or len(micro.ids) == 1
        assert not micro.mask[:, 0].any()
        assert not (micro.weights[~micro.mask] != 0).any()


def test_trajectories_count_the_same_however_they_are_split():
    split = [row(4, 2, 4, "a"), row(4, 2, 4, "a"), row(9, 8, 8, "b")]
    weights = token_weights(split, "trajectory_mean")
    assert weights[0] * 2 + weights[1] * 2 == pytest.approx(0.5)
    assert weights[2] * 8 == pytest.approx(0.5)
    assert token_weights(split, "token_mean") == [1 / 12] * 3
    with pytest.raises(ConfigError, match="median"):
        token_weights(split, "median")


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 10), st.integers(0, 5))
def test_a_plan_passes_over_every_row_in_each_epoch(count, epochs, size, seed):
    rows = [row(3, 1, name=str(number)) for number in range(count)]
    plan = plan_updates(rows, epochs=epochs, rows_per_update=size, generator=np.random.default_rng(seed))
    names = [each.trajectory_id for update in plan for each in update]
    assert sorted(names) == sorted([each.trajectory_id for each in rows] * epochs)
    assert sorted(names[:count]) == sorted(each.trajectory_id for each in rows)
    again = plan_updates(rows, epochs=epochs, rows_per_update=size, generator=np.random.default_rng(seed))
    assert [[each.trajectory_id for each in update] for update in again] == [[e.trajectory_id for e in u] for u in plan]
