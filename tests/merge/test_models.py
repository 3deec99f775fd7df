"""Models and how they are used: computed exactly, whatever goes on around them, or refused."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from agentworld.errors import ConfigError
from agentworld.merge import build_tree, check_model, tree_scores
from agentworld.merge.attention import NAME, tree_attention
from agentworld.trainers.forward import part_scores
from agentworld.trainers.parts import flat_parts
from agentworld.trainers.rows import Row
from tests.merge.models import farthest, flat_logprobs, gradients, model_of
from tests.merge.test_exact import CHAIN, STAR, merged

SEQUENCES = STAR + CHAIN
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def differences(model, way="auto"):
    """Of log-probabilities, and of all gradients, merged and flat."""
    _, nodes, found = merged(model, SEQUENCES, way)
    own, flat = found.on_paths(nodes), flat_logprobs(model, SEQUENCES)[0]
    apart = float((own - flat).detach().abs().max())
    return apart, farthest(gradients(model, own.sum()), gradients(model, flat.sum()))


@pytest.mark.parametrize(
    ("kind", "dtype", "settings"),
    [
        ("qwen3_moe", torch.float32, {"head_dim": 4, **EXPERTS}),
        ("qwen2_moe", torch.float32, {"shared_expert_intermediate_size": 16, **EXPERTS}),
        ("mistral", torch.float64, {"sliding_window": None}),
        ("qwen2", torch.float64, {"tie_word_embeddings": True}),
        ("llama", torch.float64, {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
    ],
)
def test_experts_ties_and_scaled_positions_are_exact(kind, dtype, settings):
    most = 1e-10 if dtype == torch.float64 else 1e-5
    assert max(differences(model_of(kind, dtype, **settings))) <= most


@pytest.mark.parametrize(
    ("kind", "settings", "complaint"),
    [
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 3, **EXPERTS}, "layers of sliding_attention"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}, "sliding_attention"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}}, "'dynamic'"),
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.0],
                    "long_factor": [2.0, 3.0], "original_max_position_embeddings": 8,
                }
            },
            "'longrope' depend on the longest sequence of a forward",
        ),
    ],
)  # fmt: skip
def test_what_depends_on_more_than_the_path_is_refused(kind, settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        check_model(model_of(kind, torch.float32, **settings))


def test_dropout_is_refused_while_it_draws():
    model = model_of()
    model.model.layers[0].mlp.add_module("drop", torch.nn.Dropout(0.1))
    check_model(model.eval())
    with pytest.raises(ConfigError, match=r"dropout of model\.layers\.0\.mlp\.drop draws anew for each path"):
        check_model(model.train())


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated")
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("way", ["runs", "dense"])
def test_layers_that_are_computed_again_for_the_gradient_attend_by_the_tree(way, reentrant):
    model = model_of().train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    layers = model.model.layers
    before = [layer._gradient_checkpointing_func for layer in layers]
    assert max(differences(model, way)) <= 1e-10
    assert [layer._gradient_checkpointing_func for layer in layers] == before
    assert model.config._attn_implementation == "sdpa"


def test_forwards_of_several_threads_end_in_any_order():
    model = model_of()
    flat = flat_logprobs(model, SEQUENCES)[0]

    def apart(_=None):
        _, nodes, found = merged(model, SEQUENCES)
        return float((found.on_paths(nodes) - flat).detach().abs().max())

    first, second = tree_attention(model), tree_attention(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert model.config._attn_implementation == NAME
    second.__exit__(None, None, None)
    assert model.config._attn_implementation == "sdpa"
    with ThreadPoolExecutor(4) as threads:
        assert max(threads.map(apart, range(12))) <= 1e-10
    assert model.config._attn_implementation == "sdpa"


def test_a_flat_forward_of_another_thread_is_refused_before_it_computes():
    model, begun = model_of(), []
    model.model.layers[0].register_forward_pre_hook(lambda *given: begun.append(1))
    padded = {"input_ids": torch.tensor([[0, 1, 2]]), "attention_mask": torch.tensor([[0, 1, 1]])}
    with tree_attention(model), ThreadPoolExecutor(1) as other:
        refused = other.submit(lambda: model(**padded)).exception()
    assert isinstance(refused, ConfigError)
    assert "given no tree_mask" in refused.message
    assert begun == []
    model(**padded)
    assert begun == [1]


def test_a_forward_that_fails_leaves_the_model_as_it_was():
    model = model_of()
    flat = flat_logprobs(model, SEQUENCES)[0]

    def fail(*given):
        raise ValueError("stop")

    handle = model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="stop"):
        merged(model, SEQUENCES)
    handle.remove()
    assert torch.equal(flat_logprobs(model, SEQUENCES)[0], flat)


def test_nothing_has_no_scores():
    model = model_of()
    tree = build_tree([[], []])
    found = tree_scores(model, tree, tree.parent >= 0).logprobs
    assert found.shape == (0,)
    found.sum().backward()  # as that of a micro-batch without trained tokens
    row = Row("", np.arange(3), np.zeros(3, bool), np.zeros(3, np.float32), np.zeros(3, np.float32))
    flat = part_scores(model, flat_parts([[row]], 64)[0], entropies=True)
    assert flat.logprobs.shape == flat.entropies.shape == (0,)
