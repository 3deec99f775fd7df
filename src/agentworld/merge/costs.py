"""What a forward and backward costs flat and merged, and so how much faster merging can be at most: the cost bound.

Multiplications and additions, in the usual count: a weight of a linear layer costs 2 for each token forward and 4
backward (gradients of its input and of itself); a pair of a query and a key costs 4 times the width of the heads
forward (scores, then values) and twice that backward. The vocabulary's layer costs as other linear layers do, but for
those positions alone whose logits a loss needs. Norms, activations, rotations and the reading of the embeddings are
left out: they are linear in the tokens as the linear layers are, and small beside them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.merge.tree import TokenTree

FORWARD_AND_BACKWARD = 3  # times the forward: the backward is two of it


class ModelShape(msgspec.Struct, frozen=True):
    """The sizes of a decoder that decide on its cost. `kv_heads`: heads of keys and values; `head_width`: of each.

    `gated`: whether the layer between has three matrices (SwiGLU) or two.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    gated: bool = True

    def linear_weights(self) -> int:
        """Weights of all layers that each token goes through, without the vocabulary's."""
        attention = self.hidden * self.head_width * (2 * self.heads + 2 * self.kv_heads)
        between = (3 if self.gated else 2) * self.hidden * self.intermediate
        return self.layers * (attention + between)


# From the configurations that their makers published.
MODELS = {
    "llama-3.1-8b": ModelShape(32, 4096, 14336, 32, 8, 128, 128_256),
    "llama-3.2-1b": ModelShape(16, 2048, 8192, 32, 8, 64, 128_256),
    "qwen2.5-0.5b": ModelShape(24, 896, 4864, 14, 2, 64, 151_936),
    "qwen2.5-7b": ModelShape(28, 3584, 18944, 28, 4, 128, 152_064),
    "qwen3-0.6b": ModelShape(28, 1024, 3072, 16, 8, 128, 151_936),
    "qwen3-1.7b": ModelShape(28, 2048, 6144, 16, 8, 128, 151_936),
    "qwen3-4b": ModelShape(36, 2560, 9728, 32, 8, 128, 151_936),
    "qwen3-8b": ModelShape(36, 4096, 12288, 32, 8, 128, 151_936),
}
"""Known shapes by name."""


class Load(NamedTuple):
    """What a forward has to compute: `tokens` through the layers, `pairs` of a query and a key that sees it, and
    `positions` whose logits are needed.
    """

    tokens: int
    pairs: int
    positions: int


class Cost(msgspec.Struct, frozen=True):
    """Operations of a forward and backward, by what they are for."""

    linear: float
    attention: float
    vocabulary: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.linear + self.attention + self.vocabulary


class CostBound(msgspec.Struct, frozen=True):
    """`flat` and `merged` operations for a model of `shape`. `speedup`: the one by the other, which no implementation
    of merging goes beyond where its operations are as fast; 1 where there is nothing to compute.
    """

    shape: ModelShape
    flat: Cost
    merged: Cost
    speedup: float


def model_shape(name: str) -> ModelShape:
    """The shape of a known name, or of LAYERS/HIDDEN/VOCABULARY: a decoder with as many heads of keys as of queries, as
    wide together as `hidden`, and four times that between, in two matrices. InvalidRequestError for anything else.
    """
    known = MODELS.get(name.lower())
    if known is not None:
        return known
    parts = name.split("/")
    if len(parts) == 3 and all(part.isascii() and part.isdigit() and 0 < len(part) < 10 for part in parts):
        layers, hidden, vocabulary = map(int, parts)
        if layers and hidden and vocabulary:
            return ModelShape(layers, hidden, 4 * hidden, 1, 1, hidden, vocabulary, gated=False)
    raise InvalidRequestError(
        f"no model {name[:80]!r} is known",
        path="model",
        hint=f"Use LAYERS/HIDDEN/VOCABULARY, such as 28/1024/151936, or {', '.join(MODELS)}",
    )


def shape_of(config: object) -> ModelShape:
    """The shape of a transformers configuration of a Llama, Mistral or Qwen model without experts."""
    hidden, heads = int(getattr(config, "hidden_size", 0)), int(getattr(config, "num_attention_heads", 0))
    if not hidden or not heads:
        raise InvalidRequestError(f"{type(config).__name__} says no hidden_size and num_attention_heads", path="config")
    return ModelShape(
        layers=int(getattr(config, "num_hidden_layers", 0)),
        hidden=hidden,
        intermediate=int(getattr(config, "intermediate_size", 0)),
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_width=int(getattr(config, "head_dim", None) or hidden // heads),
        vocabulary=int(getattr(config, "vocab_size", 0)),
    )


def cost(shape: ModelShape, load: Load) -> Cost:
    """Operations of a forward and backward."""
    return Cost(
        linear=float(FORWARD_AND_BACKWARD * 2 * shape.linear_weights() * load.tokens),
        attention=float(FORWARD_AND_BACKWARD * 4 * shape.layers * shape.heads * shape.head_width * load.pairs),
        vocabulary=float(FORWARD_AND_BACKWARD * 2 * shape.hidden * shape.vocabulary * load.positions),
    )


def flat_load(tree: TokenTree, trained: npt.NDArray[np.bool_]) -> Load:
    """Every sequence by itself. `trained` bool[N]: the flat tokens whose log-probabilities a loss needs."""
    lengths = tree.lengths()
    return Load(len(tree.index), int(np.sum(lengths * (lengths + 1) // 2)), int(np.count_nonzero(trained)))


def merged_load(tree: TokenTree, trained: npt.NDArray[np.bool_]) -> Load:
    """Every shared token once; logits once for each place that some trained token follows."""
    parents = tree.parent[tree.index[trained]]
    unique = len(tree.tokens)
    return Load(
        unique,
        int(np.sum(tree.depth, dtype=np.int64)) + unique,
        int(np.count_nonzero(np.bincount(parents[parents >= 0], minlength=1))),
    )


def cost_bound(shape: ModelShape, flat: Load, merged: Load) -> CostBound:
    """How much faster merging can be."""
    without, with_ = cost(shape, flat), cost(shape, merged)
    return CostBound(shape, without, with_, without.total / with_.total if with_.total else 1.0)
