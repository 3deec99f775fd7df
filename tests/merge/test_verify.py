"""Verifying on first use: what holds says so, what does not is named, and the model stays as it was."""

import dataclasses

import numpy as np
import pytest
import torch

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.merge import plan_attention
from agentworld.merge import scores as scores_module
from agentworld.merge import verify as verify_module
from agentworld.merge.gradients import relative_gap
from agentworld.merge.verify import MergeDiffersError, verify_merging
from tests.merge.models import model_of

SEQUENCES = [[1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 6, 7, 8], [9]]


@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_what_holds_says_how_far(dtype, most):
    model = model_of(dtype=dtype)
    found = verify_merging(model, SEQUENCES)
    assert (found.sequences, found.tokens, found.unique) == (3, 15, 8)
    assert (found.left_out, found.window) == (0, None)
    assert found.logprobs <= most
    assert found.gradients <= found.of_parameter <= 100 * most
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


WIDE = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4}
STEM = [(7 * place) % 89 for place in range(60)]
FORKED = [[*STEM, 90 + own, *range(own, own + 12)] for own in range(5)]


def tokens_of_the_stem_unseen(plan):
    plan.end[10:20] = np.arange(11, 21)


def siblings_seen(plan):
    plan.end[:] = len(plan.end)


def positions_that_count_on(plan):
    plan.positions[:] = np.arange(len(plan.positions))


def branches_a_place_early(plan):
    plan.positions[len(STEM) :] -= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "mistake", [tokens_of_the_stem_unseen, siblings_seen, positions_that_count_on, branches_a_place_early]
)
def test_mistakes_are_found_in_any_precision_and_nothing_else(monkeypatch, mistake, dtype):
    model = model_of("llama", dtype, **WIDE)
    assert verify_merging(model, FORKED).holds

    def mistaken(tree):
        plan = plan_attention(tree)
        mistake(plan)
        return dataclasses.replace(plan, cost=plan.cost._replace(dense=0))  # as runs know no intervals

    monkeypatch.setattr(scores_module, "plan_attention", mistaken)
    with pytest.raises(MergeDiffersError):
        verify_merging(model, FORKED)


def test_gradients_of_small_terms_that_cancel_are_no_difference():
    """Relative to its largest number, what rounding leaves of a tensor whose terms cancel would be far off."""
    one = {"weight": torch.full((1000,), 1.0), "norm": torch.full((4,), 1e-9), "unused": None}
    other = {"weight": torch.full((1000,), 1.0 + 1e-6), "norm": torch.full((4,), -1e-9), "unused": None}
    whole, parameter, apart = relative_gap(one, other)
    assert whole == pytest.approx(1e-6, rel=0.1)
    assert (parameter, apart) == ("weight", pytest.approx(1e-6, rel=0.1))
    assert relative_gap(one, {**other, "unused": torch.zeros(1)})[1] == "unused"


def test_what_is_left_out_is_said_and_what_is_too_long_is_cut(monkeypatch):
    model = model_of()
    monkeypatch.setattr(verify_module, "MOST_TOKENS", 12)
    found = verify_merging(model, [[1], *SEQUENCES, list(range(20))])
    assert (found.sequences, found.tokens, found.left_out, found.window) == (2, 9, 2, None)
    assert found.line().startswith("merged against flat on 2 of 4 sequences of 9 tokens, 6 merged: ")
    monkeypatch.setattr(verify_module, "WINDOW_TOKENS", 6)
    stem = [(5 * place) % 29 for place in range(16)]
    found = verify_merging(model, [[3], [*stem, 1, 2, 3], [*stem, 4, 5], [7] * 13])
    assert (found.sequences, found.left_out, found.window) == (2, 1, 6)
    assert found.tokens > found.unique > 6  # it forks within
    assert "on 2 of 3 sequences, around a fork 6 tokens of each at most, of" in found.line()
    assert found.where[0] in (1, 2)
    assert found.where[1] >= 13


def test_where_it_differs_is_told_of_the_sequences_that_were_given():
    model = model_of()
    model.model.layers[0].mlp.register_forward_hook(
        lambda module, given, found: found + 0.1 * found.mean(dim=1, keepdim=True)
    )
    with pytest.raises(MergeDiffersError) as caught:
        verify_merging(model, [[1], [], [1, 2, 3, 4, 5, 6], [2], [1, 2, 7]])
    assert caught.value.path.startswith(("sequences[2][", "sequences[4]["))


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated")
def test_it_needs_no_graph_outside_and_leaves_gradients_as_they_are():
    model = model_of().train()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    kept = torch.ones_like(model.lm_head.weight)
    model.lm_head.weight.grad = kept
    with torch.no_grad():
        assert verify_merging(model, SEQUENCES).holds
    assert model.lm_head.weight.grad is kept
    assert bool((kept == 1).all())
    assert model.model.norm.weight.grad is None
    model.lm_head.weight.register_post_accumulate_grad_hook(lambda weight: None)
    with pytest.raises(InvalidRequestError, match=r"lm_head\.weight has a hook"):
        verify_merging(model, SEQUENCES)


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
        assert verify_merging(model, SEQUENCES).of_parameter <= 1e-6
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
