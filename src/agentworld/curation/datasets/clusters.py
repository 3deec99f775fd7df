"""Which of many texts are the same or nearly so: equal words, or MinHash, found by bands, joined into clusters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from agentworld.curation.checks.minhash import PERMUTATIONS, Signature, band_key_table, text_signature
from agentworld.records.ids import digest

SHINGLE = 3
"""Words of one run: prompts are shorter than replies."""
_MOST_IN_A_BAND = 1_000  # texts that share one band; each further one is compared with the first so many only
Hashes = npt.NDArray[np.uint64]


class Union:
    """Disjoint sets of numbers from 0 on; the smallest of a set stands for it."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, one: int) -> int:
        """The smallest number of its set."""
        parent = self._parent
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    def join(self, one: int, other: int) -> None:
        """Make one set of two."""
        small, large = sorted((self.find(one), self.find(other)))
        self._parent[large] = small


class Texts:
    """Signatures of distinct texts by number, of which one may have several; 256 bytes each. Text that is too short for
    a run of words is like no other but itself.
    """

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}
        self._same: list[tuple[int, int]] = []
        self._numbers: list[int] = []
        self._signatures: npt.NDArray[np.uint16] = np.zeros((64, PERMUTATIONS), np.uint16)

    def add(self, number: int, text: str) -> None:
        """Take in a text of a number."""
        plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        if not plain:
            return
        key = digest(plain.encode("utf-8", "surrogatepass"))
        first = self._first.get(key)
        if first is not None:
            if first != number:
                self._same.append((first, number))
            return
        self._first[key] = number
        one = text_signature(text, SHINGLE)
        if one is None:
            return
        place = len(self._numbers)
        if place == len(self._signatures):
            self._signatures = np.concatenate([self._signatures, np.zeros_like(self._signatures)])
        self._signatures[place] = one
        self._numbers.append(number)

    def join(self, union: Union, threshold: float) -> None:
        """Join the numbers that have a text in common but for spaces and case, however short, and those whose texts are
        at least that similar, as far as a band of their signatures is equal.
        """
        for first, other in self._same:
            union.join(first, other)
        count = len(self._numbers)
        if count < 2:
            return
        signatures = self._signatures[:count]
        keys = band_key_table(signatures, threshold, [0] * count)
        for band in range(keys.shape[1]):
            for places in _together(keys[:, band]):
                self._compare(union, threshold, signatures, places)

    def _compare(self, union: Union, threshold: float, signatures: Signature, places: Sequence[int]) -> None:
        """Join those of a band that are alike. Each is compared with all that are not in its set yet."""
        for at, place in enumerate(places[:_MOST_IN_A_BAND]):
            own = union.find(self._numbers[place])
            others = [each for each in places[at + 1 :] if union.find(self._numbers[each]) != own]
            if not others:
                break  # All that come after it are in one set.
            alike = np.count_nonzero(signatures[others] == signatures[place], axis=1) >= threshold * PERMUTATIONS
            for other in np.array(others)[alike].tolist():
                union.join(self._numbers[place], self._numbers[other])


def _together(keys: Hashes) -> Iterator[list[int]]:
    """The places, in order, of keys that are there more than once."""
    order = np.argsort(keys, kind="stable")
    _, begins, counts = np.unique(keys[order], return_index=True, return_counts=True)
    for begin, count in zip(begins[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
        yield order[begin : begin + count].tolist()
