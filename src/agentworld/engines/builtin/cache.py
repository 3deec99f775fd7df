"""Keys and values of running sequences, one row each, and of finished ones for reuse.

Rows are filled from the left: the tokens of a row lie at positions 0 to n-1 whatever the other rows hold, so a
row joins, moves and leaves without touching its neighbours. What lies behind a row's n is never attended to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

_LENGTH_STEP = 256


class RowCache:
    """One tensor `[layers, 2, rows, kv heads, length, head size]` that grows on demand."""

    def __init__(self, layers: int, heads: int, size: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self._shape = (layers, heads, size)
        self.dtype = dtype
        self._data = torch.zeros((layers, 2, 0, heads, 0, size), dtype=dtype, device=device)

    @property
    def bytes_per_token(self) -> int:
        """Memory of one token in one row."""
        layers, heads, size = self._shape
        return int(layers * 2 * heads * size * self._data.element_size())

    def reserve(self, rows: int, length: int) -> None:
        """Make room for `rows` sequences of up to `length` tokens."""
        old_rows, old_length = self._data.shape[2], self._data.shape[4]
        if rows <= old_rows and length <= old_length:
            return
        rows = max(rows, old_rows) if rows <= old_rows else max(rows, 2 * old_rows)
        if length > old_length:
            length = -(-max(length, old_length * 3 // 2) // _LENGTH_STEP) * _LENGTH_STEP
        length = max(length, old_length)
        layers, heads, size = self._shape
        grown = torch.zeros((layers, 2, rows, heads, length, size), dtype=self._data.dtype, device=self._data.device)
        grown[:, :, :old_rows, :, :old_length] = self._data
        self._data = grown

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row into another."""
        self._data[:, :, target, :, :length] = self._data[:, :, source, :, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange two rows; `length` covers the longer one."""
        if one == other:
            return
        held = self._data[:, :, one, :, :length].clone()
        self.copy(other, one, length)
        self._data[:, :, other, :, :length] = held

    def take(self, row: int, length: int) -> torch.Tensor:
        """A copy of the first `length` tokens of a row: `[layers, 2, kv heads, length, head size]`."""
        return self._data[:, :, row, :, :length].clone()

    def put(self, row: int, kept: torch.Tensor, length: int) -> None:
        """Write the first `length` tokens of what `take` gave into a row."""
        self._data[:, :, row, :, :length] = kept[:, :, :, :length]

    def window(self, first: int, positions: torch.Tensor, length: int) -> RowWindow:
        """Rows `first` on, one for each row of `positions` `[rows, queries]`, over the first `length` tokens."""
        return RowWindow(self._data[:, :, first : first + positions.shape[0], :, :length], positions)


class RowWindow:
    """What a transformers model sees as its cache during one forward: it stores new keys and returns all."""

    is_compileable = False

    def __init__(self, data: torch.Tensor, positions: torch.Tensor) -> None:
        self._data = data
        self._positions = positions
        self._rows = torch.arange(positions.shape[0], device=data.device)[:, None]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store keys and values `[rows, heads, queries, size]` at their positions."""
        stored_keys, stored_values = self._data[layer, 0], self._data[layer, 1]
        stored_keys[self._rows, :, self._positions] = keys.transpose(1, 2)
        stored_values[self._rows, :, self._positions] = values.transpose(1, 2)
        return stored_keys, stored_values

    def get_seq_length(self, layer: int = 0) -> int:
        """Unused: positions and mask are given to the model explicitly."""
        return 0

    def mask(self) -> torch.Tensor:
        """`[rows, 1, queries, length]`, true where a query may look: its own position and those before."""
        span = torch.arange(self._data.shape[4], device=self._data.device)
        return (span[None, None, :] <= self._positions[:, :, None])[:, None]


LEAST_SHARED = 16
"""Shorter shared beginnings are not looked for: computing them again costs no more than copying."""


def head(ids: np.ndarray) -> bytes:
    """What two id arrays with a shared beginning worth using have in common for certain."""
    return ids[:LEAST_SHARED].tobytes()


def common_prefix(one: np.ndarray, other: np.ndarray) -> int:
    """Length of the shared beginning of two id arrays."""
    size = min(len(one), len(other))
    different = (one[:size] != other[:size]).argmax() if size else 0
    return size if size and one[different] == other[different] else int(different)


class PrefixStore:
    """Finished sequences' keys and values, least recently used out first, within a byte budget."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._used = 0
        self._entries: OrderedDict[int, tuple[np.ndarray, torch.Tensor]] = OrderedDict()
        self._by_head: dict[bytes, list[int]] = {}
        self._next = 0

    def clear(self) -> None:
        """Forget everything; called when the weights change."""
        self._entries.clear()
        self._by_head.clear()
        self._used = 0

    def accepts(self, tokens: int, bytes_per_token: int) -> bool:
        """Whether a sequence of this size would be kept."""
        return tokens >= LEAST_SHARED and tokens * bytes_per_token <= self._budget // 4

    def add(self, ids: Sequence[int], kept: torch.Tensor) -> None:
        """Keep a sequence; one that it extends is dropped."""
        array = np.asarray(ids, dtype=np.int64)
        for key in list(self._by_head.get(head(array), ())):
            other = self._entries[key][0]
            if common_prefix(other, array) == len(other):
                self._drop(key)
        self._entries[self._next] = (array, kept)
        self._by_head.setdefault(head(array), []).append(self._next)
        self._next += 1
        self._used += kept.nbytes
        while self._used > self._budget:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: int) -> None:
        array, held = self._entries.pop(key)
        self._used -= held.nbytes
        siblings = self._by_head[head(array)]
        siblings.remove(key)
        if not siblings:
            del self._by_head[head(array)]

    def find(self, ids: np.ndarray) -> tuple[int, torch.Tensor | None]:
        """The longest stored beginning of these ids, and the tensor that holds it."""
        best, best_key = 0, None
        for key in self._by_head.get(head(ids), ()):
            shared = common_prefix(self._entries[key][0], ids)
            if shared > best:
                best, best_key = shared, key
        if best_key is None:
            return 0, None
        self._entries.move_to_end(best_key)
        return best, self._entries[best_key][1]
