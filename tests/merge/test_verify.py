"""Verifying on first use: what holds says so, what does not is named, and the model stays as it was."""

import pytest
import torch

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.merge.verify import MergeDiffersError, verify_merging
from tests.merge.models import model_of

SEQUENCES = [[1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 6, 7, 8], [9]]


@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_what_holds_says_how_far(dtype, most):
    model = model_of(dtype=dtype)
    found = verify_merging(model, SEQUENCES)
    assert (found.sequences, found.tokens, found.unique) == (3, 15, 8)
    assert found.logprobs <= most
    assert found.gradients <= 100 * most
    assert found.line().startswith("merged against flat on 3 sequences of 15 tokens, 8 merged: log-probabilities")
    assert all(weights.grad is None for weights in model.parameters())


def test_a_model_that_looks_beyond_a_path_is_named():
    model = model_of()
    layer = model.model.layers[0].mlp
    # It mixes the tokens of a forward, as a convolution or a recurrence over them would.
    handle = layer.register_forward_hook(lambda module, given, found: found + 0.1 * found.mean(dim=1, keepdim=True))
    try:
        with pytest.raises(MergeDiffersError, match="log-probabilities differ by") as caught:
            verify_merging(model, SEQUENCES)
    finally:
        handle.remove()
    assert caught.value.path.startswith("sequences[")
    assert "Train this model unmerged" in caught.value.hint


class Gate(torch.autograd.Function):
    """Lets its input through, and gives the gate the gradient `told`."""

    @staticmethod
    def forward(ctx, hidden, gate, told):
        ctx.told, ctx.shape = told, gate.shape
        return hidden.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient.new_full(ctx.shape, ctx.told), None


@pytest.mark.parametrize(
    ("merged", "flat", "differs"), [(0, 0, False), ("nan", 1, True), (1, "nan", True), (1, 0, True), (0, 1, True)]
)
def test_a_gradient_that_only_one_side_has_is_named(merged, flat, differs):
    model = model_of()
    norm = model.model.norm
    norm.gate = torch.nn.Parameter(norm.weight.detach().clone())
    lengths = {len(each) for each in SEQUENCES}

    def gated(module, given, found):
        return Gate.apply(found, module.gate, float(flat if found.shape[1] in lengths else merged))

    norm.register_forward_hook(gated)
    if not differs:
        assert verify_merging(model, SEQUENCES).gradients <= 1e-6
        return
    with pytest.raises(MergeDiffersError, match=r"model\.norm\.gate"):
        verify_merging(model, SEQUENCES)


def test_frozen_weights_need_no_gradients():
    model = model_of()
    for name, weights in model.named_parameters():
        weights.requires_grad_("layers.1" in name)
    found = verify_merging(model, SEQUENCES)
    assert found.parameter is None or "layers.1" in found.parameter


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InvalidRequestError, match="no sequence has two tokens"):
        verify_merging(model_of(), [[1], []])
    with pytest.raises(ConfigError, match="merging knows no models of type 'gpt2'"):
        verify_merging(model_of("gpt2"), SEQUENCES)
