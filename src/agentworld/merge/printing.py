"""A token tree for terminals and tests: a line a run, indented below the run that it branches off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from agentworld.merge.stretches import stretches
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
    found = stretches(tree)
    ends: dict[int, list[int]] = {}
    for sequence, last in enumerate(found.last.tolist()):
        if last >= 0:
            ends.setdefault(last, []).append(sequence)
    for place in range(len(found)):
        yield Branch(
            level=int(found.level[place]),
            depth=int(found.depth[place]),
            begin=int(found.begin[place]),
            end=int(found.end[place]),
            sequences=int(found.sequences[place]),
            ending=tuple(ends.get(place, ())),
        )


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
