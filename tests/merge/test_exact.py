"""Merged equals flat: log-probabilities, entropies, losses and every gradient, in all ways and by all conventions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.merge import build_tree, convention_weights, plan_attention, tree_scores
from agentworld.merge import plan as plan_module
from agentworld.merge import scores as scores_module
from agentworld.merge.attention import TreeMask
from agentworld.merge.plan import interval_blocks
from agentworld.merge.run_attention import blocks_of
from tests.examples import examples
from tests.merge.models import VOCABULARY, farthest, flat_logprobs, gradients, model_of, trained

TREES = st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=9), min_size=1, max_size=6)
CHAIN = [list(range(3, 3 + length)) for length in (2, 5, 9, 14)]
STAR = [[1, 2, 3, own, own + 1] for own in range(4, 12)]
SHAPES = {
    "chain": CHAIN,
    "star": STAR,
    "duplicates": [[1, 2, 3], [1, 2, 3], [1, 2, 3]],
    "unshared": [[1, 2, 3], [4, 5, 6, 7], [8, 9]],
    "rollouts": [[1, 2, *([3 + own] * (2 + own))] for own in range(5)],
    "sub-agents": [[1, 2, 3, 4], [9, 8, 7], [1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 5]],
    "one": [[1, 2, 3, 4, 5]],
}


@pytest.fixture(scope="module")
def models():
    return {kind: model_of(kind) for kind in ("llama", "qwen2", "qwen3")}


def merged(model, sequences, way="auto", entropies=False):
    tree = build_tree(sequences)
    nodes = tree.index[trained(sequences)]
    needed = np.zeros(len(tree.tokens), dtype=bool)
    needed[nodes] = True
    found = tree_scores(model, tree, needed, way=way, entropies=entropies)
    return tree, nodes, found


def terms_of(sequences, seed=0):
    """Recorded log-probabilities and advantages of each path's own, [N trained]."""
    draw = np.random.default_rng(seed)
    count = int(trained(sequences).sum())
    old = torch.from_numpy(draw.normal(-2.5, 0.7, count))
    return old, torch.from_numpy(draw.normal(size=count))


def clipped(logprobs, old, advantages, weights):
    ratio = (logprobs - old).exp()
    return -(torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) * weights).sum()


@settings(max_examples=examples(15), deadline=None)
@given(TREES, st.sampled_from(["runs", "dense"]), st.sampled_from(["per_path", "first_path", "mean"]))
def test_random_trees_have_the_flat_loss_and_gradients(models, sequences, way, convention):
    model = models["llama"]
    old, advantages = terms_of(sequences)
    tree, nodes, found = merged(model, sequences, way)
    weights = torch.from_numpy(convention_weights(tree, trained(sequences), convention)[trained(sequences)])
    loss = clipped(found.on_paths(nodes), old, advantages, weights)
    own = gradients(model, loss)
    flat = clipped(flat_logprobs(model, sequences)[0], old, advantages, weights)
    torch.testing.assert_close(loss, flat, rtol=1e-12, atol=1e-12)
    assert farthest(own, gradients(model, flat)) <= 1e-10


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_shapes_and_models(models, kind, shape):
    model, sequences = models[kind], SHAPES[shape]
    _, nodes, found = merged(model, sequences, entropies=True)
    logprobs, entropies = flat_logprobs(model, sequences)
    torch.testing.assert_close(found.on_paths(nodes), logprobs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.entropies_on_paths(nodes), entropies, rtol=1e-12, atol=1e-12)
    loss = found.on_paths(nodes).sum() + 0.1 * found.entropies_on_paths(nodes).sum()
    flat = logprobs.sum() + 0.1 * entropies.sum()
    assert farthest(gradients(model, loss), gradients(model, flat)) <= 1e-10


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_single_precision(kind):
    model = model_of(kind, torch.float32)
    sequences = SHAPES["star"] + SHAPES["chain"]
    _, nodes, found = merged(model, sequences)
    flat = flat_logprobs(model, sequences)[0]
    torch.testing.assert_close(found.on_paths(nodes), flat, rtol=1e-5, atol=1e-5)
    own, other = gradients(model, found.on_paths(nodes).mean()), gradients(model, flat.mean())
    assert farthest(own, other) <= 1e-5


@pytest.mark.parametrize("way", ["runs", "dense"])
def test_blocks_of_queries_and_of_logits_change_nothing(monkeypatch, way):
    monkeypatch.setattr("agentworld.merge.attention.blocks_of", lambda runs: blocks_of(runs, 2))
    monkeypatch.setattr(scores_module, "LOGITS_AT_ONCE", 3 * VOCABULARY)
    model = model_of()
    _, nodes, found = merged(model, STAR + CHAIN, way, entropies=True)
    logprobs, entropies = flat_logprobs(model, STAR + CHAIN)
    loss = (found.on_paths(nodes) * found.entropies_on_paths(nodes)).sum()
    flat = (logprobs * entropies).sum()
    torch.testing.assert_close(loss, flat, rtol=1e-12, atol=1e-12)
    assert farthest(gradients(model, loss), gradients(model, flat)) <= 1e-10


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("shape", ["chain", "star", "sub-agents"])
def test_flex_attention_sees_the_same(models, shape):
    """It has no backward on CPU; what it computes forward is held against the others."""
    _, nodes, found = merged(models["qwen3"], SHAPES[shape], "flex")
    torch.testing.assert_close(
        found.on_paths(nodes), flat_logprobs(models["qwen3"], SHAPES[shape])[0], rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_flex_attention_are_those_of_the_whole_square(seed):
    """Made from intervals alone; held against torch's own, which evaluates every pair."""
    from torch.nn.attention.flex_attention import create_block_mask

    draw = np.random.default_rng(seed)
    stem = draw.integers(0, 50, 300).tolist()
    sequences = [[*stem[: int(draw.integers(100, 300))], *draw.integers(0, 50, 150).tolist()] for _ in range(6)]
    plan = plan_attention(build_tree(sequences[: 2 * seed + 1]))
    mask = TreeMask(plan, torch.device("cpu"), "flex")._block_mask
    count = len(plan.ids)
    whole = create_block_mask(mask.mask_mod, None, None, count, count, device="cpu")
    assert torch.equal(mask.to_dense(), whole.to_dense())
    squares = plan.visible()
    partial, full = interval_blocks(plan.end)
    for row, column in np.argwhere(full):
        assert squares[row * 128 : row * 128 + 128, column * 128 : column * 128 + 128].all()
    assert not (partial & full).any()
    assert full.any() or seed == 0


def test_temperatures_divide_the_logits():
    model, sequences = model_of(), [[1, 2, 3, 4], [1, 2, 5], [6, 7, 8]]
    heats = np.array([0.7, 0.7, 1.3])
    marks = np.repeat([0, 0, 1], [4, 3, 3])
    tree = build_tree(sequences, distinct=marks)
    nodes = tree.index[trained(sequences)]
    by_node = np.ones(len(tree.tokens))
    by_node[tree.index] = np.repeat(heats, [4, 3, 3])
    found = tree_scores(model, tree, tree.parent >= 0, temperatures=by_node)
    torch.testing.assert_close(found.on_paths(nodes), flat_logprobs(model, sequences, heats)[0], rtol=1e-12, atol=1e-12)
    by_node[tree.index[-1]] = 2.0
    by_node[tree.index[2]] = 2.0
    with pytest.raises(InvalidRequestError, match="equal for tokens that follow one prefix"):
        tree_scores(model, tree, tree.parent >= 0, temperatures=by_node)


def test_logits_are_made_once_for_each_position_that_a_loss_needs(models, monkeypatch):
    model, rows = models["llama"], []
    head = model.get_output_embeddings()
    handle = head.register_forward_hook(lambda module, given, found: rows.append(len(found)))
    try:
        tree = build_tree(STAR)
        needed = np.zeros(len(tree.tokens), dtype=bool)
        needed[tree.index[[3, 8, 13]]] = True  # three children of one parent
        tree_scores(model, tree, needed)
    finally:
        handle.remove()
    assert rows == [1]


def test_what_was_not_asked_for_is_refused(models):
    tree = build_tree([[1, 2, 3]])
    with pytest.raises(InvalidRequestError, match="first token has no log-probability"):
        tree_scores(models["llama"], tree, np.array([True, False, False]))
    found = tree_scores(models["llama"], tree, np.array([False, True, False]))
    with pytest.raises(InvalidRequestError, match="were not asked for"):
        found.on_paths(np.array([2]))
    with pytest.raises(InvalidRequestError, match="entropies were not asked for"):
        found.entropies_on_paths(np.array([1]))
    nothing = tree_scores(models["llama"], tree, np.zeros(3, dtype=bool))
    assert nothing.logprobs.shape == (0,)


def test_the_model_is_as_it_was(models):
    model = models["llama"]
    merged(model, STAR)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("kind", "settings", "complaint"),
    [
        ("gpt2", {}, "merging knows no models of type 'gpt2'"),
        ("mistral", {"sliding_window": 4}, "layers of sliding_attention"),
        ("llama", {"attention_dropout": 0.1}, "attention dropout draws anew"),
    ],
)
def test_models_that_merging_does_not_compute_are_refused(kind, settings, complaint):
    model = model_of(kind, **settings).train()
    with pytest.raises(ConfigError, match=complaint):
        merged(model, STAR)


def test_runs_compute_each_pair_once_and_the_cheaper_way_is_taken(monkeypatch):
    plan = plan_attention(build_tree(STAR))
    assert plan.cost.needed == int(plan.visible().sum())
    assert plan.dense  # eight calls for eight short leaves
    monkeypatch.setattr(plan_module, "CALL_PAIRS", 0)
    plan = plan_attention(build_tree(SHAPES["unshared"]))
    assert (plan.cost.runs, plan.dense) == (plan.cost.needed, False)
