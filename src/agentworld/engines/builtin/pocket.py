"""Pocket: a Qwen3-architecture transformer of about a million parameters for machines without a GPU.

It starts with random weights; the demo trains it from nothing. torch and transformers load on the first call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from agentworld.errors import ConfigError, InvalidRequestError, NotFoundError
from agentworld.syncing import sync

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

__all__ = ["POCKET_TOKENIZER_PATH", "load_pocket", "load_pocket_tokenizer", "save_pocket"]

CONTEXT = 1024
"""Longest sequence in tokens, prompt and reply together."""

SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 448,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
    "attention_dropout": 0.0,
    "initializer_range": 0.05,
}


def load_pocket_tokenizer() -> PreTrainedTokenizerFast:
    """Pocket's tokenizer in transformers' class; `tokenizers.Tokenizer.from_file` reads the same file."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_file=str(POCKET_TOKENIZER_PATH),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def load_pocket(weights: Path | None = None, seed: int = 0) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Build pocket in float32 on the CPU, in evaluation mode.

    `weights` is a safetensors file from `save_pocket` (or a directory that holds `model.safetensors`);
    without it the weights are drawn from `seed`, the same ones each time. The global random state is kept.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = load_pocket_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **SHAPE,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    if weights is not None:
        _read_weights(model, Path(weights))
    model.eval()
    return model, tokenizer


def _read_weights(model: Any, path: Path) -> None:
    """Load a safetensors file into `model`; names and shapes must match."""
    from agentworld.engines.builtin.models import install_weights, read_weights

    if not path.exists():
        raise NotFoundError(f"no weights at {path}", path=str(path), hint="Give a file written by `save_pocket`")
    try:
        install_weights(model, read_weights(model, path))
    except InvalidRequestError as error:
        raise ConfigError(f"{path} does not hold pocket's weights: {error.message}", path=str(path)) from error


def save_pocket(model: Any, path: Path) -> None:
    """Write the weights to `path` as safetensors; a reader sees the old file or the new one, never a part."""
    from safetensors.torch import save_file

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        name: tensor.detach().contiguous().cpu()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    partial = path.with_name(f".{path.name}.partial")
    save_file(state, str(partial), metadata={"format": "pt"})
    sync(partial)
    partial.replace(path)
    sync(path.parent)
