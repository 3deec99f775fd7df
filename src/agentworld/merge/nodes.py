"""A token tree as a list of nodes, for who draws it: what matters most of it, bounded."""

from __future__ import annotations

import heapq

from agentworld.errors import InvalidRequestError
from agentworld.merge.forks import fork_reasons
from agentworld.merge.reading import Sequences
from agentworld.merge.results import MOST_ENDS, MOST_IDS, MOST_NODES, MergeNode, MergeTree
from agentworld.merge.stretches import stretches


def merge_tree(found: Sequences, *, max_nodes: int = 1000, depth: int | None = None, ids: int = 0) -> MergeTree:
    """The tree with at most `max_nodes` nodes: those behind which most flat tokens are, so that what is left out is
    what would be drawn smallest; `depth`: only so many nodes below one another; `ids`: token ids of each node, at most.
    """
    check_nodes(max_nodes, depth, ids)
    tree = found.tree()
    parts = stretches(tree)
    steps = [each.step for each in found.items]
    reasons = fork_reasons(parts, steps).reasons
    below = parts.below().tolist()
    parent = parts.parent.tolist()
    height = [0] * len(parts)
    for place, above in enumerate(parent):
        height[place] = height[above] + 1 if above >= 0 else 1
    candidates = [place for place in range(len(parts)) if depth is None or height[place] <= depth]
    # What is behind a node is part of what is behind its parent, which stands before it: so parents are taken first.
    kept = sorted(heapq.nsmallest(max_nodes, candidates, key=lambda place: (-below[place], place)))
    number = {place: at for at, place in enumerate(kept)}
    hidden, hidden_tokens = [0] * len(kept), [0] * len(kept)
    lengths = parts.lengths().tolist()
    owner: list[int] = []  # of each stretch: the nearest node above it that is kept
    for place, above in enumerate(parent):
        if place in number:
            owner.append(number[place])
            continue
        holder = owner[above] if above >= 0 else -1
        owner.append(holder)
        if holder >= 0:
            hidden[holder] += 1
            hidden_tokens[holder] += lengths[place]
    ends: dict[int, list[int]] = {}
    for sequence, last in enumerate(parts.last.tolist()):
        ends.setdefault(last, []).append(sequence)
    units = _units(found, parent, ends)
    first = parts.first().tolist()
    nodes = []
    for place in kept:
        begin, end = int(parts.begin[place]), int(parts.end[place])
        own = ends.get(place, [])
        nodes.append(
            MergeNode(
                id=number[place],
                parent=number[parent[place]] if parent[place] >= 0 else -1,
                start=int(parts.depth[place]),
                length=end - begin,
                sequences=int(parts.sequences[place]),
                ending=len(own),
                ends=[steps[sequence].step_id for sequence in own[:MOST_ENDS]],
                reason=reasons[place],
                unit=units[place],
                hidden=hidden[number[place]],
                hidden_tokens=hidden_tokens[number[place]],
                token_ids=tree.tokens[begin : min(end, begin + ids)].tolist(),
                vocabulary=steps[first[place]].vocabulary if ids else None,
            )
        )
    return MergeTree(
        source=found.source,
        nodes=nodes,
        nodes_in_all=len(parts),
        sequences=len(found.items),
        total=len(tree.index),
        unique=len(tree.tokens),
        excluded=found.excluded,
        without_ids=found.without_ids,
        missing=found.missing,
        stopped=found.stopped,
    )


def check_nodes(max_nodes: int, depth: int | None, ids: int) -> None:
    """InvalidRequestError where so many cannot be asked for."""
    bounds = (("max_nodes", max_nodes, 1, MOST_NODES), ("depth", depth, 1, 2**31), ("ids", ids, 0, MOST_IDS))
    for name, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            raise InvalidRequestError(f"{name} must be from {least} to {most}, not {value}", path=name)


def _units(found: Sequences, parent: list[int], ends: dict[int, list[int]]) -> list[str | None]:
    """The unit that all sequences through each stretch are of; None where they are of several."""
    several = ""  # No unit has an empty name.
    units: list[str | None] = [None] * len(parent)
    for place in range(len(parent) - 1, -1, -1):
        for name in {found.items[sequence].unit for sequence in ends.get(place, [])}:
            units[place] = name if units[place] in (None, name) else several
        above = parent[place]
        if above >= 0:
            units[above] = units[place] if units[above] in (None, units[place]) else several
    return [unit or None for unit in units]
