"""Forward and backward over the same rows, merged and flat: time, peak memory, and the bound of what merging saves."""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentworld.merge.costs import Cost, cost, cost_bound, flat_load, merged_load, shape_of
from agentworld.trainers.forward import part_scores
from agentworld.trainers.minibatches import row_tree, trained
from agentworld.trainers.parts import Part, chosen_parts
from agentworld.trainers.rows import Row
from agentworld.trainers.settings import Merging

if TYPE_CHECKING:
    import torch


class Passes(NamedTuple):
    """`seconds` of each pass over all micro-batches, of the processor on CPU and of the clock elsewhere; `peak`: bytes
    of tensors at most, beyond what was there before; `tokens` computed, padding included; `merged`: whether of trees.
    """

    seconds: tuple[float, ...]
    peak: int
    tokens: int
    merged: bool


class Comparison(NamedTuple):
    """`ratio`: tokens of all rows by those of their tree. `speedup`: the median of flat by merged over passes that took
    turns. `bound`: by operations, of layers, attention and vocabulary together (see merge.costs), `flat_cost` and
    `merged_cost`. `difference`: largest of log-probabilities.
    """

    ratio: float
    flat: Passes
    merged: Passes
    speedup: float
    bound: float
    flat_cost: Cost
    merged_cost: Cost
    difference: float

    @property
    def share(self) -> float:
        """Of the bound that was reached."""
        return self.speedup / self.bound

    @property
    def memory(self) -> float:
        """Peak of merged by that of flat."""
        return self.merged.peak / self.flat.peak


def random_model(*, device: str = "cpu", hidden: int = 320, layers: int = 6, vocabulary: int = 8_192) -> Any:
    """A decoder of Qwen3's kind with random weights that are drawn from one seed, in float32 on CPU and bfloat16
    elsewhere. As it is by default it has 10.6 million parameters. The global random state is kept.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64,
        head_dim=64,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        initializer_range=0.06,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    dtype = torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    return model.to(device=device, dtype=dtype)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread of the CPU, and afterwards on as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compare(model: Any, rows: Sequence[Row], *, tokens: int, repeats: int = 3, merging: Merging = "auto") -> Comparison:
    """Forward and backward of the mean log-probability of what the rows train, in micro-batches of at most `tokens`,
    flat and by `merging`, taking turns; one pass of each before counts for nothing but memory.
    """
    import torch

    units = [[row] for row in rows]
    shape = shape_of(model.config)
    flat, merged = (chosen_parts(units, way, tokens, None, shape) for way in ("off", merging))
    peaks, scores = [], []
    for parts in (flat, merged):
        own: dict[int, torch.Tensor] = {}
        peaks.append(peak_bytes(model, partial(_pass, model, parts, own)))
        scores.append(torch.cat([own[id(row)] for row in rows]))
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats):
        for number, parts in enumerate((flat, merged)):
            seconds[number].append(_timed(model, parts))
    tree = row_tree(rows)
    mask = np.concatenate([trained(row) for row in rows])
    loads = flat_load(tree, mask), merged_load(tree, mask)
    return Comparison(
        ratio=len(tree.index) / len(tree.tokens),
        flat=Passes(tuple(seconds[0]), peaks[0], sum(part.tokens for part in flat), False),
        merged=Passes(tuple(seconds[1]), peaks[1], sum(part.tokens for part in merged), merged[0].tree is not None),
        speedup=median(one / two for one, two in zip(*seconds, strict=True)),
        bound=cost_bound(shape, *loads).speedup,
        flat_cost=cost(shape, loads[0]),
        merged_cost=cost(shape, loads[1]),
        difference=float((scores[0] - scores[1]).abs().max()),
    )


def peak_bytes(model: Any, work: Callable[[], object]) -> int:
    """The most bytes that tensors made by `work` held at one time. On CPU every operation's outputs are followed until
    they are freed, gradients included, and what an operation holds only inside is not; on CUDA the allocator is asked.
    """
    import torch

    device = next(model.parameters()).device
    model.zero_grad(set_to_none=True)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    following = _following()
    with following:
        work()
    return int(following.peak)


def _following() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Following(TorchDispatchMode):  # type: ignore[misc]  # torch's is not typed
        """Bytes of storages that are alive."""

        def __init__(self) -> None:
            super().__init__()
            self.now = self.peak = 0
            self._known: set[int] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            for each in found if isinstance(found, tuple | list) else (found,):
                if isinstance(each, torch.Tensor):
                    self._add(each.untyped_storage())
            return found

        def _add(self, storage: Any) -> None:
            place, size = storage.data_ptr(), storage.nbytes()
            if not size or place in self._known:
                return
            self._known.add(place)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, place, size)

        def _drop(self, place: int, size: int) -> None:
            self._known.discard(place)
            self.now -= size

    return Following()


def _pass(model: Any, parts: Sequence[Part], found: dict[int, torch.Tensor] | None = None) -> None:
    """Forward and backward of each micro-batch; `found` gets the log-probabilities of each row, by its identity."""
    for part in parts:
        scores = part_scores(model, part).logprobs
        scores.mean().neg().backward()
        if found is not None:
            counts = [int(trained(row).sum()) for row in part.rows]
            found |= zip(map(id, part.rows), scores.detach().split(counts), strict=True)


def _timed(model: Any, parts: Sequence[Part]) -> float:
    import torch

    device = next(model.parameters()).device
    model.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    begin = clock()
    _pass(model, parts)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - begin
