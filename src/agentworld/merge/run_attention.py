"""Attention over a token tree run by run, as one function with a gradient of its own.

What a run attends to is gathered, computed and let go of, and gathered again for its gradient; gradients of keys and
values are added in place. So memory and time beside attention itself are those of the tokens of the tree and, one at a
time, of the paths above its runs, however many runs there are.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentworld.merge.plan import QUERIES, Run

if TYPE_CHECKING:
    import torch

Interval = tuple[int, int]


class Block(NamedTuple):
    """Queries `first` to `last` of a run, and the `seen` intervals of the tree, the last of which ends with them: what
    they attend to, but for what comes after each within the last `last - first` tokens. `causal`: nothing else is seen.
    """

    first: int
    last: int
    seen: tuple[Interval, ...]
    causal: bool


def blocks_of(runs: Sequence[Run], queries: int = QUERIES) -> list[Block]:
    """The runs in blocks: those of a root whole, others of so many queries, so that their masks stay small."""
    found = []
    for run in runs:
        if not len(run.above):
            found.append(Block(run.begin, run.end, ((run.begin, run.end),), causal=True))
            continue
        cuts = np.flatnonzero(np.diff(run.above) != 1) + 1
        edges = [0, *cuts.tolist(), len(run.above)]
        above = [(int(run.above[a]), int(run.above[b - 1]) + 1) for a, b in itertools.pairwise(edges)]
        for first in range(run.begin, run.end, queries):
            last = min(first + queries, run.end)
            if above[-1][1] == run.begin:
                seen = (*above[:-1], (above[-1][0], last))
            else:
                seen = (*above, (run.begin, last))
            found.append(Block(first, last, seen, causal=False))
    return found


def attend_by_blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: Sequence[Block], scaling: float | None
) -> torch.Tensor:
    """Outputs [1, heads, U, size] for queries of that shape; keys and values may have fewer heads. Its graph goes
    backward once.
    """
    found: torch.Tensor = _function().apply(query, key, value, blocks, scaling)
    return found


class _Sums:
    """Where gradients of keys or values are added while a graph goes backward."""

    def __init__(self) -> None:
        self.whole: torch.Tensor | None = None


@cache
def _function() -> Any:
    import torch
    from torch.autograd.function import once_differentiable

    class ByBlocks(torch.autograd.Function):  # type: ignore[misc]  # torch's is not typed
        """The blocks' attention, each with a graph of its own that is kept for the gradient."""

        @staticmethod
        def forward(
            ctx: Any,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            blocks: Sequence[Block],
            scaling: float | None,
        ) -> torch.Tensor:
            graph = any(ctx.needs_input_grad[:3])
            output = query.new_empty((*query.shape[:3], value.shape[3]))
            given = [each.detach().requires_grad_(graph) for each in (key, value)]
            sums = _Sums(), _Sums()
            kept = []
            for block in blocks:
                own = query[:, :, block.first : block.last].detach().requires_grad_(graph)
                found = _attend(own, given, sums, block, scaling, graph=graph)
                output[:, :, block.first : block.last] = found.detach()
                if graph:
                    kept.append((block, own, found))
            ctx.kept, ctx.sums, ctx.given = kept, sums, given if graph else None
            return output

        @staticmethod
        @once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            (gradient,) = gradients
            if ctx.kept is None:
                raise RuntimeError("attention over a token tree goes backward once")
            for sums, each in zip(ctx.sums, ctx.given, strict=True):
                sums.whole = torch.zeros_like(each)
            parts = []
            for block, own, found in ctx.kept:
                inputs = (own, *ctx.given)
                part = gradient[:, :, block.first : block.last]
                parts.append(torch.autograd.grad(found, inputs, part, allow_unused=True)[0])
            keys, values = (sums.whole for sums in ctx.sums)
            ctx.kept = ctx.given = ctx.sums = None
            return torch.cat(parts, dim=2), keys, values, None, None

    return ByBlocks


@cache
def _gathering() -> Any:
    import torch

    class Gathering(torch.autograd.Function):  # type: ignore[misc]  # torch's is not typed
        """Intervals of keys or values; what comes back is added where they came from, in place."""

        @staticmethod
        def forward(ctx: Any, whole: torch.Tensor, seen: Sequence[Interval], sums: _Sums) -> torch.Tensor:
            ctx.seen, ctx.sums = seen, sums
            return _gather(whole, seen)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            (gradient,), at = gradients, 0
            for begin, end in ctx.seen:
                ctx.sums.whole[:, :, begin:end] += gradient[:, :, at : at + end - begin]
                at += end - begin
            return None, None, None

    return Gathering


def _attend(
    query: torch.Tensor,
    given: Sequence[torch.Tensor],
    sums: Sequence[_Sums],
    block: Block,
    scaling: float | None,
    *,
    graph: bool,
) -> torch.Tensor:
    """The output of the block's queries with all keys and values; with `graph`, of autograd."""
    import torch
    import torch.nn.functional as functional

    groups = query.shape[1] // given[0].shape[1]
    makers: dict[int, Callable[[], torch.Tensor]] = {}
    with torch.set_grad_enabled(graph), _made_again(makers):
        gathered = []
        for whole, own in zip(given, sums, strict=True):
            part = _gathering().apply(whole, block.seen, own)
            if groups > 1:
                part = part.repeat_interleave(groups, dim=1)
            if groups > 1 or len(block.seen) > 1:
                makers[part.data_ptr()] = partial(_again, whole.detach(), block.seen, groups)
            gathered.append(part)
        mask = None
        if not block.causal:
            shape = (block.last - block.first, gathered[0].shape[2])
            mask = _mask(shape, query)
            makers[mask.data_ptr()] = partial(_mask, shape, query.detach())
        return functional.scaled_dot_product_attention(
            query, gathered[0], gathered[1], attn_mask=mask, is_causal=block.causal, scale=scaling
        )


def _gather(whole: torch.Tensor, seen: Sequence[Interval]) -> torch.Tensor:
    import torch

    parts = [whole[:, :, begin:end] for begin, end in seen]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _again(whole: torch.Tensor, seen: Sequence[Interval], groups: int) -> torch.Tensor:
    part = _gather(whole, seen)
    return part.repeat_interleave(groups, dim=1) if groups > 1 else part


def _mask(shape: tuple[int, int], like: torch.Tensor) -> torch.Tensor:
    """0 where a query sees a key, else minus infinity, [1, 1, queries, keys]; the last keys are the queries' own."""
    import torch

    queries, keys = shape
    hidden = torch.full((queries, queries), float("-inf"), dtype=like.dtype, device=like.device).triu(1)
    return torch.cat([hidden.new_zeros(queries, keys - queries), hidden], dim=1)[None, None]


@contextlib.contextmanager
def _made_again(makers: dict[int, Callable[[], torch.Tensor]]) -> Iterator[None]:
    """What autograd would keep is made again instead, where `makers` has how, by the address of its memory."""
    import torch

    def pack(tensor: torch.Tensor) -> Any:
        return makers.get(tensor.data_ptr(), tensor)

    def unpack(kept: Any) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        made: torch.Tensor = kept()
        return made

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield
