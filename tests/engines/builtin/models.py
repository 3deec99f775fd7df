"""A tiny Qwen3 with random weights over bytes, and independent scoring to compare the engine with."""

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from agentworld.engines.tokenizer import byte_tokenizer

CONTEXT = 512
VOCABULARY = 265


def make_model(seed, hidden=32):
    """Grouped-query attention, tied embeddings, spread enough that sampling matters."""
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=258,
        pad_token_id=256,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config).eval()


def save_model(directory, seed, hidden=32):
    """Write a model directory as the engine opens it."""
    make_model(seed, hidden).save_pretrained(directory)
    byte_tokenizer().backend.save(str(directory / "tokenizer.json"))
    return directory


def logits_of(directory, prompt, reply):
    """Float32 logits `[len(reply), vocabulary]` that each reply token was drawn from, by one plain forward."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([prompt + reply])).logits[0]
    return logits[len(prompt) - 1 : -1]


def rescore(directory, prompt, reply, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Log-probability of each reply token under the given sampling settings; -inf where they exclude it."""
    out = []
    for row, token_id in zip(logits_of(directory, prompt, reply), reply, strict=True):
        probabilities = torch.softmax(row.double() / temperature, -1)
        kept = probabilities >= min_p * probabilities.max()
        if top_k:
            kept &= probabilities >= probabilities.sort(descending=True).values[top_k - 1]
        probabilities = probabilities * kept / (probabilities * kept).sum()
        if top_p < 1.0:
            ranked = sorted(range(len(row)), key=lambda i: -probabilities[i].item())
            total, nucleus = 0.0, []
            for index in ranked:
                if nucleus and total >= top_p:
                    break
                nucleus.append(index)
                total += probabilities[index].item()
            mask = torch.zeros_like(probabilities)
            mask[nucleus] = 1
            probabilities = probabilities * mask / (probabilities * mask).sum()
        out.append(torch.log(probabilities[token_id]).item())
    return out
