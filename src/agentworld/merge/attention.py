"""Attention over token trees, for transformers models by their registry of attention functions.

On CPU the runs of the tree one after the other, or one square where that costs less; on CUDA FlexAttention with a block
mask made from intervals. What each token sees is its own path, whichever way is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from agentworld.errors import ConfigError
from agentworld.merge.plan import AttentionPlan, interval_blocks
from agentworld.merge.run_attention import attend_by_blocks, blocks_of

if TYPE_CHECKING:
    import torch

NAME = "agentworld_tree"
_FLEX_BLOCK = 128  # of queries and of keys, as FlexAttention has it by default
Way = Literal["auto", "runs", "dense", "flex"]
# Decoders whose layers mix tokens by causal attention alone. Rotary positions are given by position ids.
SUPPORTED = ("llama", "mistral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe")


class TreeMask:
    """A plan on the device of a model, with the way that is taken."""

    def __init__(self, plan: AttentionPlan, device: torch.device, way: Way = "auto") -> None:
        import torch

        if way == "auto":
            way = "flex" if device.type == "cuda" else "dense" if plan.dense else "runs"
        self.way = way
        self.ids = torch.from_numpy(plan.ids).to(device)[None]
        self.positions = torch.from_numpy(plan.positions).to(device)[None]
        self._device = device
        self._blocks = blocks_of(plan.runs) if way == "runs" else []
        self._block_mask: Any = self._flex_mask(plan.end) if way == "flex" else None
        self._square = torch.from_numpy(plan.visible()).to(device)[None, None] if way == "dense" else None

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
    ) -> torch.Tensor:
        """Outputs [1, heads, U, size] for queries of that shape; keys and values may have fewer heads."""
        if self.way == "flex":
            from torch.nn.attention.flex_attention import flex_attention

            return _compiled(flex_attention, self._device)(
                query, key, value, block_mask=self._block_mask, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
            )
        import torch.nn.functional as functional

        gqa = query.shape[1] != key.shape[1]
        if self._square is not None:
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask=self._square, scale=scaling, enable_gqa=gqa
            )
        return attend_by_blocks(query, key, value, self._blocks, scaling)

    def _flex_mask(self, end: npt.NDArray[np.int64]) -> Any:
        """Blocks from the tree's intervals, so that no square of its tokens is ever made."""
        import torch
        from torch.nn.attention.flex_attention import BlockMask

        ends = torch.from_numpy(end).to(self._device)

        def sees(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return (key <= query) & (query < ends[key])

        listed = []
        for blocks in interval_blocks(end, _FLEX_BLOCK):
            order = np.argsort(~blocks, axis=1, kind="stable")
            for array in (blocks.sum(axis=1), order):
                listed.append(torch.from_numpy(array.astype(np.int32)).to(self._device)[None, None])
        return BlockMask.from_kv_blocks(
            *listed, BLOCK_SIZE=_FLEX_BLOCK, mask_mod=sees, seq_lengths=(len(end), len(end))
        )


_COMPILED: dict[str, Any] = {}


def _compiled(function: Any, device: torch.device) -> Any:
    """FlexAttention computes in blocks only where it is compiled; on CPU it is taken as it is."""
    import torch

    if device.type != "cuda":
        return function
    if device.type not in _COMPILED:
        _COMPILED[device.type] = torch.compile(function, dynamic=True)
    return _COMPILED[device.type]


def check_model(model: Any) -> None:
    """ConfigError where merging would not compute what the model computes, with what it is that stands against it."""
    config = model.config
    kind = getattr(config, "model_type", type(model).__name__)
    if kind not in SUPPORTED:
        raise ConfigError(
            f"merging knows no models of type {kind!r}",
            path="model",
            hint=f"Train it unmerged; merging knows {', '.join(SUPPORTED)}, whose layers mix tokens by attention alone",
        )
    layers = set(getattr(config, "layer_types", None) or ("full_attention",))
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if layers != {"full_attention"} or (kind == "mistral" and window):
        raise ConfigError(
            f"the model has layers of {', '.join(sorted(layers - {'full_attention'})) or 'sliding_attention'}",
            path="model",
            hint="Merging needs full attention in every layer: train it unmerged, or configure it without the window",
        )
    if model.training and getattr(config, "attention_dropout", 0.0):
        raise ConfigError(
            "attention dropout draws anew for each path, and merging computes a shared token once",
            path="model",
            hint="Set attention_dropout to 0",
        )


@contextmanager
def tree_attention(model: Any) -> Iterator[None]:
    """Within it the model's layers attend by the `tree_mask` that the forward is given."""
    check_model(model)
    _register()
    config = model.get_decoder().config
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    *,
    tree_mask: TreeMask | None = None,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention function: outputs [1, U, heads, size]."""
    if tree_mask is None:
        raise ConfigError("the forward was given no tree_mask", hint="Use agentworld.merge.tree_hidden")
    return tree_mask.attend(query, key, value, scaling).transpose(1, 2).contiguous(), None


def tree_hidden(model: Any, plan: AttentionPlan, *, way: Way = "auto") -> torch.Tensor:
    """The last hidden states of every token of a tree, [U, width]: each as in a forward over any path through it."""
    device = next(model.parameters()).device
    mask = TreeMask(plan, device, way)
    with tree_attention(model):
        found = model.get_decoder()(
            input_ids=mask.ids, position_ids=mask.positions, use_cache=False, tree_mask=mask
        ).last_hidden_state
    hidden: torch.Tensor = found[0]
    return hidden


__all__ = ["NAME", "SUPPORTED", "TreeMask", "Way", "check_model", "tree_attention", "tree_hidden"]
