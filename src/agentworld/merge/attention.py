"""Attention over token trees, for transformers models by their registry of attention functions.

On CPU the runs of the tree one after the other, or one square where that costs less; on CUDA FlexAttention with a block
mask made from intervals. What each token sees is its own path, whichever way is taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from agentworld.errors import ConfigError
from agentworld.merge.models import check_model
from agentworld.merge.plan import AttentionPlan, interval_blocks
from agentworld.merge.run_attention import attend_by_blocks, blocks_of

if TYPE_CHECKING:
    import torch

NAME = "agentworld_tree"
_FLEX_BLOCK = 128  # of queries and of keys, as FlexAttention has it by default
Way = Literal["auto", "runs", "dense", "flex"]


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
            import torch
            from torch.nn.attention.flex_attention import flex_attention

            if torch.is_autocast_enabled(self._device.type):  # It is not cast by itself, as attention elsewhere is.
                dtype = torch.get_autocast_dtype(self._device.type)
                query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
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


class _Switched:
    """A configuration whose models attend by trees at the moment: how many forwards do, what it said before, and the
    layers whose checkpointing is led back to trees, with what it was.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self.before = config._attn_implementation
        self.forwards = 0
        self.layers: list[tuple[Any, Any]] = []


_SWITCHED: dict[int, _Switched] = {}
_LOCK = threading.Lock()
_HERE = threading.local()  # `forwards`: how many of this thread attend by trees


@contextmanager
def tree_attention(model: Any) -> Iterator[None]:
    """Within it the model's layers attend by the `tree_mask` that the forward is given. Any number of threads may be
    in it with one model; another forward of that model is refused meanwhile.
    """
    check_model(model)
    _register()
    decoder = model.get_decoder()
    _HERE.forwards = getattr(_HERE, "forwards", 0) + 1
    try:
        with _switched(decoder.config) as switched:
            with _LOCK:
                _lead_checkpoints(decoder, switched)
            yield
    finally:
        _HERE.forwards -= 1


@contextmanager
def _switched(config: Any) -> Iterator[_Switched]:
    """The first one in switches, the last one out switches back."""
    with _LOCK:
        switched = _SWITCHED.setdefault(id(config), _Switched(config))
        switched.forwards += 1
        config._attn_implementation = NAME
    try:
        yield switched
    finally:
        with _LOCK:
            switched.forwards -= 1
            if not switched.forwards:
                del _SWITCHED[id(config)]
                config._attn_implementation = switched.before
                for layer, function in switched.layers:
                    layer._gradient_checkpointing_func = function


class _Leading:
    """A function of checkpointing: what it runs, and runs again for the gradient, attends by trees."""

    def __init__(self, function: Callable[..., Any], config: Any) -> None:
        self._function = function
        self._config = config

    def __call__(self, layer: Callable[..., Any], *given: Any, **settings: Any) -> Any:
        def run(*inputs: Any, **more: Any) -> Any:
            with _switched(self._config):
                return layer(*inputs, **more)

        return self._function(run, *given, **settings)


def _lead_checkpoints(decoder: Any, switched: _Switched) -> None:
    for layer in decoder.modules():
        function = getattr(layer, "_gradient_checkpointing_func", None)
        if function is not None and not isinstance(function, _Leading):
            switched.layers.append((layer, function))
            layer._gradient_checkpointing_func = _Leading(function, switched.config)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _no_mask)


def _no_mask(*given: Any, **settings: Any) -> None:
    """Trees need none; a forward of another thread, which may need one, would go without it."""
    if not getattr(_HERE, "forwards", 0):
        raise _not_a_tree()


def _not_a_tree() -> ConfigError:
    return ConfigError(
        "the forward was given no tree_mask while the model attends by trees",
        hint="Use agentworld.merge.tree_hidden, and let one thread at a time compute a model in another way",
    )


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
        raise _not_a_tree()
    return tree_mask.attend(query, key, value, scaling).transpose(1, 2).contiguous(), None


def tree_hidden(model: Any, plan: AttentionPlan, *, way: Way = "auto") -> torch.Tensor:
    """The last hidden states of every token of a tree, [U, width]: each as in a forward over any path through it."""
    import torch

    device = next(model.parameters()).device
    if not len(plan.ids):
        check_model(model)
        nothing: torch.Tensor = model.get_input_embeddings()(torch.zeros(0, dtype=torch.int64, device=device))
        return nothing
    mask = TreeMask(plan, device, way)
    with tree_attention(model):
        found = model.get_decoder()(
            input_ids=mask.ids, position_ids=mask.positions, use_cache=False, tree_mask=mask
        ).last_hidden_state
    hidden: torch.Tensor = found[0]
    return hidden


__all__ = ["NAME", "TreeMask", "Way", "tree_attention", "tree_hidden"]
