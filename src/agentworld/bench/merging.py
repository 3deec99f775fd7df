"""What merging saves: trees beside a trie in Python, and training passes merged beside flat, each beside its bound."""

from __future__ import annotations

import gc
import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.bench.figure import Figure
from agentworld.bench.merge_shapes import UNSHARED, shapes
from agentworld.bench.record import one_core
from agentworld.merge import build_tree
from agentworld.trainers.measuring import Comparison, compare, one_thread, random_model

_TURNS, _NEW = 20, 500  # of a run whose calls are sequences: C is near half its turns
_ROUNDS = 9
_FRACTION = 0.8  # of the bound that is required
_MICRO_TOKENS = 4_096  # as the trainer has it by default


@dataclass
class MergeBench:
    """How much to measure: tokens of the batch whose tree is built; the factor of the lengths of what is trained;
    passes each way. `model`: what makes the model that is trained, by default random_model of 10.6 million parameters.
    """

    tokens: int = 1_000_000
    scale: float = 0.75
    repeats: int = 3
    seed: int = 7
    model: Callable[[], Any] = random_model


class Section(NamedTuple):
    """One table: its name on the command line, its title, and what measures it."""

    name: str
    title: str
    measure: Callable[[MergeBench], list[Figure]]


def build(bench: MergeBench) -> list[Figure]:
    """Trees of batches of the calls of multi-turn runs, beside a trie that is filled token by token: medians of each
    done again and again, after one that does not count; and of trees right after a trie, whose objects fill memory and
    caches.
    """
    flat, offsets = laid(multi_turn_ids(bench.tokens, bench.seed))
    tree, beside_it = partial(build_tree, flat, offsets), partial(trie, flat, offsets)
    with one_core():
        trees = [_processor(tree) for _ in range(1 + _ROUNDS)][1:]
        tries, after = zip(*([_processor(way) for way in (beside_it, tree)] for _ in range(1 + _ROUNDS)), strict=True)
    rate, beside, slower = (len(flat) / median(times) / 1e6 for times in (trees, tries[1:], after[1:]))
    parts = [_bytes_a_token(multi_turn_ids(bench.tokens // part, bench.seed)) for part in (1, 4)]
    return [
        Figure("tokens by those of the tree (C)", build_tree(flat, offsets).statistics().ratio, "times"),
        Figure("tree built", rate, "M tokens/s", beside=beside, required=100.0),
        Figure("quicker than a trie in Python", rate / beside, "times", required=30.0),
        Figure("tree built right after a trie", slower, "M tokens/s", required=100.0),
        Figure("peak memory", parts[0], "bytes/token", beside=parts[1], required=1.2 * parts[1], better="less"),
    ]


def train(bench: MergeBench) -> list[Figure]:
    """Forward and backward of the calls of some runs as sequences, by the trainer's own choice and flat; one thread."""
    model = bench.model()
    vocabulary = int(model.config.vocab_size)
    found = []
    with one_core(), one_thread():
        for name, rows in shapes(vocabulary, bench.scale, bench.seed).items():
            found += _of_shape(name, compare(model, rows, tokens=_MICRO_TOKENS, repeats=bench.repeats))
    return found


def _of_shape(name: str, found: Comparison) -> list[Figure]:
    """Beside the speed-up its bound, beside memory that of flat; the bound's parts are without a requirement."""
    shared = name != UNSHARED
    flat, merged = found.flat_cost, found.merged_cost
    peaks = found.merged.peak / 2**20, found.flat.peak / 2**20
    return [
        Figure(f"{name}: C", found.ratio, "times"),
        Figure(
            f"{name}: speed-up",
            found.speedup,
            "times",
            beside=found.bound,
            required=_FRACTION * found.bound if shared else 0.95,
        ),
        Figure(
            f"{name}: peak memory",
            peaks[0],
            "MiB",
            beside=peaks[1],
            required=peaks[1] if shared else 1.01 * peaks[1],
            better="less",
        ),
        Figure(f"{name}: log-probabilities differ by", found.difference, "", required=1e-4, better="less"),
        Figure(f"{name}: layers, less work", flat.linear / merged.linear, "times"),
        Figure(f"{name}: attention, less work", flat.attention / merged.attention, "times"),
        Figure(f"{name}: vocabulary, less work", flat.vocabulary / merged.vocabulary, "times"),
        Figure(f"{name}: attention's part of flat work", 100 * flat.attention / flat.total, "%"),
        Figure(f"{name}: vocabulary's part of flat work", 100 * flat.vocabulary / flat.total, "%"),
    ]


def multi_turn_ids(tokens: int, seed: int) -> list[npt.NDArray[np.uint32]]:
    """About so many tokens in sequences: every call of runs of 20 turns, whose prompt is all before it."""
    random = np.random.default_rng(seed)
    runs = max(1, round(tokens / (_NEW * _TURNS * (_TURNS + 1) / 2)))
    whole = [random.integers(0, 151_643, _NEW * _TURNS, dtype=np.uint32) for _ in range(runs)]
    return [each[: _NEW * turn] for each in whole for turn in range(1, _TURNS + 1)]


def laid(sequences: Sequence[npt.NDArray[np.uint32]]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Sequences one after the other, and where each begins, as build_tree takes them."""
    offsets = np.zeros(len(sequences) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in sequences], out=offsets[1:])
    return np.concatenate(sequences), offsets


def trie(flat: npt.NDArray[np.uint32], offsets: npt.NDArray[np.int64]) -> tuple[list[int], list[int], list[int]]:
    """What build_tree is held against: a node a token, filled token by token. As it, it gives the token, the parent and
    where each flat token is in the tree; nodes are numbered as they come.
    """
    roots: dict[int, int] = {}
    children: list[dict[int, int]] = []
    tokens: list[int] = []
    parents: list[int] = []
    index: list[int] = []
    ids = flat.tolist()
    for begin, end in itertools.pairwise(offsets.tolist()):
        own, node = roots, -1
        for token in ids[begin:end]:
            child = own.get(token)
            if child is None:
                child = own[token] = len(children)
                children.append({})
                tokens.append(token)
                parents.append(node)
            index.append(child)
            node = child
            own = children[node]
    return tokens, parents, index


def _processor(work: Callable[[], object]) -> float:
    """Seconds of the processor, those of the system for it included; garbage of others is no concern of it."""
    gc.collect()
    gc.disable()
    try:
        begin = time.process_time()
        work()
        return time.process_time() - begin
    finally:
        gc.enable()


def _bytes_a_token(sequences: Sequence[npt.NDArray[np.uint32]]) -> float:
    """The most that building holds at one time, beyond the ids themselves."""
    flat, offsets = laid(sequences)
    tracemalloc.start()
    try:
        build_tree(flat, offsets)
        return tracemalloc.get_traced_memory()[1] / len(flat)
    finally:
        tracemalloc.stop()


SECTIONS = [
    Section("build", "token trees of multi-turn runs, beside a trie in Python, on one core", build),
    Section("train", "forward and backward, merged beside its bound and flat, on one core", train),
]


def measure(bench: MergeBench, names: Iterable[str]) -> Iterator[tuple[Section, list[Figure]]]:
    """The figures of the named sections, all where none is named, each as soon as it is there."""
    wanted = set(names)
    for section in SECTIONS:
        if not wanted or section.name in wanted:
            yield section, section.measure(bench)
