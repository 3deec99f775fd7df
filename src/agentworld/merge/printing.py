"""A token tree for terminals and tests: a line a run, indented below the run that it branches off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from agentworld.merge.plan import plan_attention
from agentworld.merge.tree import TokenTree


class Branch(NamedTuple):
    """A stretch of tokens without a fork: `depth` of its first token, `level` of the line, `sequences` that go through
    it and `ending`, those that end with it.
    """

    level: int
    depth: int
    begin: int
    end: int
    sequences: int
    ending: tuple[int, ...]


def branches(tree: TokenTree) -> Iterator[Branch]:
    """The tree's stretches in preorder: a run is cut where sequences end or others branch off."""
    uses = tree.uses()
    ends: dict[int, list[int]] = {}
    for sequence in range(len(tree.offsets) - 1):
        path = tree.path(sequence)
        if len(path):
            ends.setdefault(int(path[-1]), []).append(sequence)
    level_of: dict[int, int] = {}  # of the stretch that ends with a token
    for run in plan_attention(tree).runs:
        own = np.arange(run.begin, run.end)
        cuts = (np.flatnonzero(np.diff(uses[own]) != 0) + run.begin + 1).tolist()
        level = level_of[int(tree.parent[run.begin])] + 1 if len(run.above) else 0
        for begin, end in zip([run.begin, *cuts], [*cuts, run.end], strict=True):
            level_of[end - 1] = level
            ending = tuple(ends.get(end - 1, ()))
            yield Branch(level, int(tree.depth[begin]), begin, end, int(uses[begin]), ending)


def render_tree(
    tree: TokenTree, names: Sequence[str], text: Callable[[Sequence[int]], str] | None = None, width: int = 40
) -> str:
    """One line a stretch: how many tokens, how many sequences share them, which end there, and with `text` (of ids)
    what they begin with.
    """
    lines = []
    for each in branches(tree):
        shared = f" x{each.sequences}" if each.sequences > 1 else ""
        said = ""
        if text is not None:
            whole = " ".join(text(tree.tokens[each.begin : each.end][: 4 * width].tolist()).split())
            said = f"  {whole if len(whole) <= width else whole[: width - 1] + '…'}"
        ended = f"  [{', '.join(names[sequence] for sequence in each.ending)}]" if each.ending else ""
        lines.append(f"{'  ' * each.level}{each.end - each.begin}{shared}{said}{ended}")
    return "\n".join(lines)
