import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.credit import StepTree, chain, loss_weights, path_tokens
from agentworld.errors import ConfigError, InvalidRequestError
from tests.credit.builders import trees, values
from tests.examples import examples


@st.composite
def forked(draw):
    """A tree with, of each step, a credit and the mask of its reply."""
    parents = draw(trees(least=1))
    mask = st.lists(st.integers(0, 1), max_size=4)
    return parents, [draw(values) for _ in parents], [draw(mask) for _ in parents]


@settings(max_examples=examples(60))
@given(forked(), st.sampled_from(["mean", "first_path"]))
def test_rows_of_paths_weigh_what_the_steps_do_once(drawn, shared):
    parents, credits, masks = drawn
    lengths = [sum(mask) for mask in masks]
    denominator = max(1, sum(lengths))
    rows = path_tokens(StepTree(parents), credits, masks, denominator=denominator, shared=shared)
    # As without forks: each step once, in a row of its own or in one chain.
    flat = path_tokens(StepTree(chain(len(parents))), credits, masks, denominator=denominator)
    for form in (rows, flat):
        assert sum(row.weights.sum() for row in form) == pytest.approx(sum(lengths) / denominator)
        weighted = sum(credit * length for credit, length in zip(credits, lengths, strict=True)) / denominator
        assert sum((row.weights * row.advantages).sum() for row in form) == pytest.approx(weighted, abs=1e-9)
    for row in rows:
        sampled = np.concatenate([np.asarray(masks[step], dtype=bool) for step in row.steps])
        assert not row.weights[~sampled].any()
        assert not row.advantages[~sampled].any()


@settings(max_examples=examples(40))
@given(forked())
def test_whole_paths_still_weigh_one_trajectory(drawn):
    parents, credits, masks = drawn
    rows = path_tokens(StepTree(parents), credits, masks, shared="per_path")
    assert sum(row.weights.sum() for row in rows) == pytest.approx(1.0 if any(map(sum, masks)) else 0.0)
    given_weights = {float(weight) for row in rows for weight in row.weights if weight}
    assert len(given_weights) <= 1


@settings(max_examples=examples(40))
@given(st.lists(forked(), min_size=1, max_size=4), st.sampled_from(["token_mean", "trajectory_mean"]))
def test_a_batch_of_paths_weighs_what_a_batch_of_chains_does(trajectories, aggregation):
    """Rows with shares: the same total, and the same weight of each trajectory, as when every step stands once."""
    counts, denominators, shares, owner = [], [], [], []
    flat_counts, flat_denominators = [], []
    for number, (parents, _, masks) in enumerate(trajectories):
        lengths = [sum(mask) for mask in masks]
        tree = StepTree(parents)
        for path, parts in zip(tree.paths(), tree.path_shares("mean"), strict=True):
            for step, part in zip(path, parts, strict=True):
                counts.append(lengths[step])
                denominators.append(sum(lengths))
                shares.append(part)
                owner.append(number)
        flat_counts.append(sum(lengths))
        flat_denominators.append(sum(lengths))
    found = loss_weights(counts, denominators, shares=shares, aggregation=aggregation) * np.asarray(counts)
    flat = loss_weights(flat_counts, flat_denominators, aggregation=aggregation) * np.asarray(flat_counts)
    of_trajectory = np.bincount(owner, weights=found, minlength=len(trajectories))
    assert of_trajectory == pytest.approx(flat, abs=1e-9)
    if sum(flat_counts):
        assert found.sum() == pytest.approx(1.0)
    if aggregation == "trajectory_mean":
        taught = [weight for weight, count in zip(of_trajectory, flat_counts, strict=True) if count]
        assert taught == pytest.approx([1 / max(1, len(taught))] * len(taught))


def test_what_does_not_fit_is_refused():
    with pytest.raises(InvalidRequestError):
        path_tokens(StepTree(chain(2)), [1.0], [[1], [1]])
    with pytest.raises(ConfigError) as error:
        loss_weights([1], [1], aggregation="median")
    assert error.value.path == "aggregation"
