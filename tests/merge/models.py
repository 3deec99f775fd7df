"""Small models with random weights, and the flat forward that merging is held against: a sequence at a time."""

from __future__ import annotations

import numpy as np
import torch

VOCABULARY = 29


def model_of(kind="llama", dtype=torch.float64, seed=0, **settings):
    """A decoder of two layers in `dtype`; `kind` llama, qwen2 or qwen3."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "tie_word_embeddings": False, "attn_implementation": "sdpa",
    }  # fmt: skip
    if kind == "qwen3":
        sizes["head_dim"] = 4
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**sizes, **settings}))
    # Weights as the initialisation makes them give nearly even distributions, which hide what is wrong.
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.3)
    return _with_exact_norms(model.to(dtype))


def _with_exact_norms(model):
    """transformers' norms compute in float32 whatever the model's type is; torch's compute in it."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            # Gemma's are others, and have no such epsilon.
            if type(child).__name__.endswith("RMSNorm") and hasattr(child, "variance_epsilon"):
                norm = torch.nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon, dtype=child.weight.dtype)
                norm.weight = child.weight
                setattr(module, name, norm)
    return model


def flat_logprobs(model, sequences, temperatures=None):
    """log p of every token but the first of each sequence, and entropies, one forward a sequence."""
    logprobs, entropies = [], []
    for place, sequence in enumerate(sequences):
        if len(sequence) < 2:
            continue
        logits = model(input_ids=torch.tensor([list(map(int, sequence))]), use_cache=False).logits[0, :-1]
        heat = 1.0 if temperatures is None else float(temperatures[place])
        found = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)) / heat, dim=-1)
        labels = torch.tensor(list(map(int, sequence[1:])))
        logprobs.append(found.gather(1, labels[:, None])[:, 0])
        entropies.append(-(found.exp() * found).sum(dim=-1))
    return torch.cat(logprobs), torch.cat(entropies)


def gradients(model, loss):
    """All gradients of a loss, by name; the model's are reset."""
    model.zero_grad()
    loss.backward()
    return {name: weights.grad.clone() for name, weights in model.named_parameters() if weights.grad is not None}


def farthest(one, other):
    """The largest difference of two sets of gradients, relative to the largest value of each tensor's."""
    assert one.keys() == other.keys()
    differences = (
        float((one[name] - other[name]).abs().max() / other[name].abs().max())
        for name in one
        if float(other[name].abs().max()) > 1e-12
    )
    return max(differences, default=0.0)


def trained(sequences):
    """Flat bool mask: every token but the first of each sequence."""
    return np.concatenate([np.arange(len(each)) > 0 for each in sequences])
