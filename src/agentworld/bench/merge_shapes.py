"""Rows as agents' runs give them, one for each call of a model, in the shapes that merging meets; seeded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agentworld.trainers.rows import Row

Draw = Callable[[int], list[int]]
UNSHARED = "unshared"


def shapes(vocabulary: int, scale: float = 1.0, seed: int = 7) -> dict[str, list[Row]]:
    """Rows by the name of their shape. `scale` multiplies lengths; at 1 each has 6,000 to 12,000 tokens."""
    random = np.random.default_rng(seed)

    def draw(count: int) -> list[int]:
        found: list[int] = random.integers(1, vocabulary, max(2, int(count * scale))).tolist()
        return found

    return {
        "long chain": _calls(draw, draw(96), 9, result=88, reply=48),
        "short prompt": [_row(prompt, draw(64)) for prompt in [draw(192)] for _ in range(24)],
        "long prompt": [_row(prompt, draw(112)) for prompt in [draw(1152)] for _ in range(6)],
        "multi-turn group": [
            row for opening in [draw(320)] for _ in range(4) for row in _calls(draw, opening, 4, result=56, reply=40)
        ],
        "sub-agents": _sub_agents(draw),
        "compaction": _compaction(draw),
        UNSHARED: [_row(draw(480), draw(160)) for _ in range(10)],
    }


def _row(prompt: list[int], reply: list[int]) -> Row:
    ids = np.asarray([*prompt, *reply], dtype=np.int64)
    mask = np.arange(len(ids)) >= len(prompt)
    nothing = np.zeros(len(ids), dtype=np.float32)
    return Row("", ids, mask, nothing, nothing, 1.0, len(reply))


def _calls(draw: Draw, history: list[int], turns: int, *, result: int, reply: int) -> list[Row]:
    """A run of so many calls: each prompt is all before it and a tool's result."""
    rows = []
    for _ in range(turns):
        history = [*history, *draw(result)]
        said = draw(reply)
        rows.append(_row(history, said))
        history = [*history, *said]
    return rows


def _sub_agents(draw: Draw) -> list[Row]:
    """Two runs of one task; each calls two sub-agents, which share a system prompt of their own."""
    task, system = draw(240), draw(200)
    rows = []
    for _ in range(2):
        rows += _calls(draw, task, 5, result=72, reply=40)
        for _ in range(2):
            rows += _calls(draw, system, 3, result=56, reply=32)
    return rows


def _compaction(draw: Draw) -> list[Row]:
    """Two runs of one task whose history is replaced by a summary half way."""
    system = draw(320)
    rows = []
    for _ in range(2):
        rows += _calls(draw, system, 5, result=64, reply=40)
        rows += _calls(draw, [*system, *draw(80)], 4, result=64, reply=40)
    return rows
