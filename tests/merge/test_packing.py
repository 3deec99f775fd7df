"""Micro-batches: nothing left out, under the budget, counted right, no worse than any cut of the order."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError
from agentworld.merge import build_tree, pack
from tests.examples import examples

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=9)


def pairs(length):
    return length * (length + 1) // 2


def tokens_of(sequences, chosen):
    nodes = {tuple(sequences[each][:end]) for each in chosen for end in range(1, len(sequences[each]) + 1)}
    return len(nodes), sum(map(len, nodes))


@settings(max_examples=examples(200))
@given(SEQUENCES, st.integers(6, 14), st.none() | st.integers(21, 60), st.integers(1, 3))
def test_every_sequence_once_under_the_budget_and_counted_right(sequences, budget, attention, ranks):
    found = pack(build_tree(sequences), budget, attention_budget=attention, ranks=ranks)
    batches = found.micro_batches
    assert sorted(each for batch in batches for each in batch.sequences) == list(range(len(sequences)))
    for batch in batches:
        assert (batch.tokens, batch.attention) == tokens_of(sequences, batch.sequences)
        assert batch.tokens <= budget
        assert attention is None or batch.attention <= attention
    assert found.tokens == sum(batch.tokens for batch in batches)
    assert found.bound == tokens_of(sequences, range(len(sequences)))[0] <= found.tokens
    assert len({len(rank) for rank in found.ranks}) == 1
    assert len(found.ranks) == ranks
    assert 0 < found.balance <= 1 + 1e-9


@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.integers(0, 1), max_size=4), min_size=1, max_size=7), st.integers(5, 9))
def test_a_tree_is_cut_where_least_is_lost(tails, budget):
    sequences = [[9, *tail] for tail in tails]
    tree = build_tree(sequences)
    order = tree.order.tolist()
    least = min(
        (sum(tokens_of(sequences, part)[0] for part in parts), len(parts))
        for parts in _cuts(order)
        if all(tokens_of(sequences, part)[0] <= budget for part in parts)
    )
    found = pack(tree, budget)
    assert found.tokens == least[0]
    assert len(found.micro_batches) <= least[1]


def _cuts(order):
    for places in itertools.product((False, True), repeat=len(order) - 1):
        parts = [[order[0]]]
        for begins, each in zip(places, order[1:], strict=True):
            parts = [*parts, [each]] if begins else [*parts[:-1], [*parts[-1], each]]
        yield parts


def test_what_shares_nothing_fills_the_room_that_is_left():
    sequences = [[1] * 6, [2] * 6, [3] * 4, [4] * 4]
    found = pack(build_tree(sequences), 10)
    assert [batch.tokens for batch in found.micro_batches] == [10, 10]
    assert found.fewest == 2


def test_ranks_get_equally_many_and_much_the_same():
    sequences = [[group, turn, *range(10)] for group in range(4) for turn in range(3)]
    found = pack(build_tree(sequences), 200, ranks=3)
    assert [len(rank) for rank in found.ranks] == [1, 1, 1]
    assert found.balance > 0.8


def test_what_cannot_be_divided_is_filled_up_with_nothing():
    tree = build_tree([[1, 2]])
    assert [batch.sequences for batch in pack(tree, 5, ranks=2).micro_batches] == [(0,), ()]
    with pytest.raises(InvalidRequestError, match="1 micro-batches cannot be dealt evenly to 2 ranks"):
        pack(tree, 5, ranks=2, pad=False)


def test_a_sequence_over_the_budget_is_named():
    tree = build_tree([[1], [2, 2, 2]])
    with pytest.raises(InvalidRequestError, match="sequence 1 has 3 tokens, over the budget of 2"):
        pack(tree, 2)
    with pytest.raises(InvalidRequestError, match="sequence 1 has 6 pairs of tokens, over the budget of 5"):
        pack(tree, 3, attention_budget=5)
    with pytest.raises(InvalidRequestError, match="from 1"):
        pack(tree, 0)
