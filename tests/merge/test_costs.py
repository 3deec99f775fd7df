"""The cost bound: weights are those of real models, pairs and positions those of a count without formulas."""

import numpy as np
import pytest
import torch

from agentworld.errors import InvalidRequestError
from agentworld.merge import build_tree, plan_attention
from agentworld.merge.costs import MODELS, ModelShape, cost, cost_bound, flat_load, merged_load, model_shape, shape_of
from tests.merge.models import model_of


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_weights_are_those_of_the_models_linear_layers(kind):
    model = model_of(kind)
    head = model.get_output_embeddings()
    layers = [each for each in model.modules() if isinstance(each, torch.nn.Linear) and each is not head]
    shape = shape_of(model.config)
    assert shape.linear_weights() == sum(each.weight.numel() for each in layers)
    assert shape.hidden * shape.vocabulary == head.weight.numel()


def test_loads_are_what_is_computed():
    sequences = [[1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2], [7, 8], []]
    trained = np.array([0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1], dtype=bool)
    tree = build_tree(sequences)
    flat, merged = flat_load(tree, trained), merged_load(tree, trained)
    assert flat == (13, sum(range(5)) + sum(range(6)) + 3 + 3, 6)
    # After 1 2 follows a 3, after 1 2 3 a 4 and a 5, after 1 2 3 5 a 6, after 7 an 8.
    assert merged == (8, int(plan_attention(tree).visible().sum()), 4)
    found = cost_bound(ModelShape(1, 2, 3, 1, 1, 2, 5), flat, merged)
    assert found.flat == cost(found.shape, flat)
    assert (found.flat.linear, found.flat.attention, found.flat.vocabulary) == (6 * 34 * 13, 12 * 2 * 31, 6 * 10 * 6)
    assert found.speedup == found.flat.total / found.merged.total > 1
    nothing = build_tree([])
    assert cost_bound(found.shape, *[load(nothing, trained[:0]) for load in (flat_load, merged_load)]).speedup == 1.0


def test_names_and_sizes():
    assert model_shape("Qwen3-0.6B") == MODELS["qwen3-0.6b"]
    assert model_shape("2/16/100").linear_weights() == 2 * 12 * 16**2
    # Published numbers of parameters, embeddings counted once.
    for name, billions in (("qwen3-0.6b", 0.596), ("qwen3-8b", 7.57), ("llama-3.1-8b", 7.5), ("qwen2.5-0.5b", 0.494)):
        shape = MODELS[name]
        assert shape.linear_weights() + shape.hidden * shape.vocabulary == pytest.approx(billions * 1e9, rel=0.01)
    for name in ("huge", "1/2", "0/1/1", "1/2/x", "1/2/3/4", ""):
        with pytest.raises(InvalidRequestError, match="is known"):
            model_shape(name)
