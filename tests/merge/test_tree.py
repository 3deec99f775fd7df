"""The token tree against a trie of dictionaries: the same nodes, intervals, paths and numbers."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError
from agentworld.merge import build_tree
from agentworld.merge import tree as tree_module

SMALL = st.lists(st.lists(st.integers(0, 2), max_size=7), max_size=12)


class Trie:
    """The same by dictionaries, a node a token: children by token, in a list of nodes."""

    def __init__(self, sequences):
        self.nodes = []  # (parent, token)
        self.roots = {}
        self.paths = []
        for sequence in sequences:
            level, parent, path = self.roots, -1, []
            for token in sequence:
                if token not in level:
                    level[token] = (len(self.nodes), {})
                    self.nodes.append((parent, token))
                parent, level = level[token]
                path.append(parent)
            self.paths.append(path)

    def below(self, node):
        """How many nodes the subtree of a node has, itself included."""
        return sum(node in self.upwards(other) for other in range(len(self.nodes)))

    def upwards(self, node):
        while node >= 0:
            yield node
            node = self.nodes[node][0]


@given(SMALL)
def test_it_is_the_trie_of_its_sequences(sequences):
    tree, trie = build_tree(sequences), Trie(sequences)
    assert len(tree.tokens) == len(trie.nodes)
    paths = [tree.path(each) for each in range(len(sequences))]
    names = {}  # of the trie's nodes in the tree
    for sequence, path, other in zip(sequences, paths, trie.paths, strict=True):
        assert tree.tokens[path].tolist() == sequence
        assert tree.depth[path].tolist() == list(range(len(sequence)))
        for here, there in zip(path.tolist(), other, strict=True):
            assert names.setdefault(there, here) == here
    assert sorted(names.values()) == list(range(len(trie.nodes)))
    for there, here in names.items():
        parent = trie.nodes[there][0]
        assert tree.parent[here] == (names[parent] if parent >= 0 else -1)
        assert tree.parent[here] < here
        assert tree.end[here] - here == trie.below(there)


@given(SMALL)
def test_a_token_sees_exactly_its_own_path(sequences):
    tree = build_tree(sequences)
    places = np.arange(len(tree.tokens))
    sees = (places[None, :] <= places[:, None]) & (places[:, None] < tree.end[None, :])
    for own in range(len(sequences)):
        path = tree.path(own)
        for depth, token in enumerate(path):
            assert np.flatnonzero(sees[token]).tolist() == path[: depth + 1].tolist()


@given(SMALL)
def test_statistics_count(sequences):
    tree, trie = build_tree(sequences), Trie(sequences)
    found = tree.statistics()
    total, unique = sum(map(len, sequences)), len(trie.nodes)
    children = [sum(parent == node for parent, _ in trie.nodes) for node in range(-1, unique)]
    assert (found.sequences, found.total, found.unique) == (len(sequences), total, unique)
    assert found.ratio == (total / unique if unique else 1.0)
    assert found.depth == max(map(len, sequences), default=0)
    assert (found.leaves, found.forks) == (children[1:].count(0), sum(count > 1 for count in children))
    uses = [sum(node in path for path in trie.paths) for node in range(unique)]
    assert sorted(tree.uses().tolist()) == sorted(uses)


@given(SMALL, st.randoms(use_true_random=False))
def test_the_order_of_sequences_changes_nothing_but_their_order(sequences, random):
    places = list(range(len(sequences)))
    random.shuffle(places)
    one, other = build_tree(sequences), build_tree([sequences[place] for place in places])
    for name in ("tokens", "parent", "depth", "end"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    for here, there in enumerate(places):
        assert other.path(here).tolist() == one.path(there).tolist()


@given(st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=5), max_size=8))
def test_tokens_that_are_marked_as_distinct_are_not_merged(sequences):
    flat = [pair for sequence in sequences for pair in sequence]
    marks = np.array([mark for _, mark in flat], dtype=np.int64)
    tree = build_tree([[token for token, _ in sequence] for sequence in sequences], distinct=marks)
    assert len(tree.tokens) == len(Trie(sequences).nodes)
    assert tree.tokens[tree.index].tolist() == [token for token, _ in flat]


def test_sequences_that_are_equal_for_long_are_sorted_in_stretches(monkeypatch):
    draw = np.random.default_rng(5)
    stem = draw.integers(0, 300, 60)
    own = [np.concatenate([stem[: draw.integers(0, 61)], draw.integers(0, 2, draw.integers(0, 9))]) for _ in range(80)]
    own += [each.copy() for each in own[:20]]
    marks = np.concatenate([np.arange(len(each)) // 30 % 2 for each in own])
    for first, then in ((4, 4), (8, 24), (64, 8)):
        monkeypatch.setattr(tree_module, "_FIRST_COMPARED", first)
        monkeypatch.setattr(tree_module, "_THEN_COMPARED", then)
        for tree in (build_tree(own), build_tree(own, distinct=marks)):
            assert tree.order.tolist() == sorted(range(len(own)), key=lambda place: own[place].tolist())
            assert len(tree.tokens) == len({tuple(each[:end]) for each in own for end in range(1, len(each) + 1)})


def test_building_holds_little_more_than_the_index():
    """Above twice its largest array the allocator may give all memory back each time, and building waits for pages."""
    whole = np.random.default_rng(0).integers(0, 50_000, 10_000, dtype=np.uint32)
    sequences = [whole[: 500 * turn] for turn in range(1, 21)] * 2
    offsets = np.cumsum([0, *map(len, sequences)])
    flat = np.concatenate(sequences)
    tracemalloc.start()
    try:
        build_tree(flat, offsets)
        assert tracemalloc.get_traced_memory()[1] < 7 * len(flat)
    finally:
        tracemalloc.stop()


def test_large_ids_and_flat_arrays():
    ids = np.array([2**32 - 1, 0, 2**32 - 1, 1], dtype=np.uint32)
    tree = build_tree(ids, np.array([0, 2, 2, 4]))
    assert tree.tokens.tolist() == [2**32 - 1, 0, 1]
    assert [tree.path(each).tolist() for each in range(3)] == [[0, 1], [], [0, 2]]


@pytest.mark.parametrize(
    ("ids", "offsets", "complaint"),
    [
        ([[-1]], None, "ids are from 0"),
        ([[2**32]], None, "ids are from 0"),
        ([[0.5]], None, "whole numbers"),
        ([[[1]]], None, "in one row"),
        (np.arange(3), np.array([0, 2]), "offsets ascend"),
        (np.arange(3), np.array([0, 2, 1, 3]), "offsets ascend"),
        (np.arange(3), np.array([], dtype=np.int64), "offsets ascend"),
    ],
)
def test_what_is_no_batch_is_refused(ids, offsets, complaint):
    with pytest.raises(InvalidRequestError, match=complaint):
        build_tree(ids, offsets)


def test_marks_have_the_length_of_the_ids():
    with pytest.raises(InvalidRequestError, match="2 values for 1 ids"):
        build_tree([[1]], distinct=np.array([0, 0]))
