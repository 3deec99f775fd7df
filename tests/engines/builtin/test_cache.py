import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentworld.engines.builtin.cache import LEAST_SHARED, PrefixStore, RowCache, common_prefix


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
def test_common_prefix(one, other):
    expected = 0
    while expected < min(len(one), len(other)) and one[expected] == other[expected]:
        expected += 1
    assert common_prefix(np.array(one, dtype=np.int64), np.array(other, dtype=np.int64)) == expected


def cache():
    return RowCache(2, 3, 4, dtype=torch.float32, device=torch.device("cpu"))


def fill(rows, row, length):
    values = torch.rand(2, 2, 3, length, 4)
    rows.put(row, values, length)
    return values


def test_rows_survive_growing_moving_and_swapping():
    rows = cache()
    rows.reserve(2, 10)
    first, second = fill(rows, 0, 10), fill(rows, 1, 7)
    rows.reserve(9, 700)
    assert torch.equal(rows.take(0, 10), first)
    rows.swap(0, 1, 10)
    assert torch.equal(rows.take(0, 7), second)
    assert torch.equal(rows.take(1, 10), first)
    rows.copy(1, 5, 10)
    assert torch.equal(rows.take(5, 10), first)
    assert rows.bytes_per_token == 2 * 2 * 3 * 4 * 4


def test_a_window_writes_at_its_positions_and_looks_no_further():
    rows = cache()
    rows.reserve(3, 8)
    positions = torch.tensor([[2, 3], [0, 1]])
    window = rows.window(1, positions, 4)
    keys = torch.rand(2, 3, 2, 4)
    stored, _ = window.update(keys, torch.rand(2, 3, 2, 4), 1)
    assert stored.shape == (2, 3, 4, 4)
    assert torch.equal(stored[0, :, 2:4], keys[0])
    assert torch.equal(stored[1, :, 0:2], keys[1])
    assert window.mask()[:, 0].int().tolist() == [
        [[1, 1, 1, 0], [1, 1, 1, 1]],
        [[1, 0, 0, 0], [1, 1, 0, 0]],
    ]


def tensor(length):
    return torch.zeros(1, 2, 1, length, 1)


def test_the_store_finds_the_longest_beginning_and_forgets_the_oldest():
    store = PrefixStore(budget_bytes=4 * 2 * 100)
    base = list(range(LEAST_SHARED + 4))
    store.add([*base, 50], tensor(21))
    store.add([*base, 60, 61], tensor(22))
    assert store.find(np.array([*base, 60, 70]))[0] == 21
    assert store.find(np.array([*base, 50, 70]))[0] == 21
    assert store.find(np.array([9, *base]))[0] == 0
    store.add([*base, 50, 51], tensor(22))  # takes the place of what it extends
    store.add([7] * 60, tensor(60))  # and this does not fit beside both
    assert store.find(np.array([*base, 60, 61]))[0] == 20
    assert store.find(np.array([*base, 50, 51]))[0] == 22
    store.clear()
    assert store.find(np.array([7] * 60)) == (0, None)


def test_the_store_takes_nothing_short_or_huge():
    store = PrefixStore(budget_bytes=1000)
    assert not store.accepts(LEAST_SHARED - 1, 1)
    assert store.accepts(LEAST_SHARED, 1)
    assert not store.accepts(300, 1)
