"""Which of many texts are the same or nearly so: equal words, or MinHash, found by bands, joined into clusters."""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Iterator

import numpy as np

from agentworld.curation.checks.minhash import PERMUTATIONS, band_column, bands, text_signature
from agentworld.curation.checks.words import Hashes
from agentworld.curation.datasets.scratch import Places, Scratch, Signatures
from agentworld.records.ids import digest

SHINGLE = 3
"""Words of one run: prompts are shorter than replies."""
_MOST_IN_A_BAND = 1_000  # texts that share one band; each further one is compared with the first so many only
_AT_ONCE = 4_096  # signatures that one is compared with


class Union:
    """Disjoint sets of numbers from 0 on; the smallest of a set stands for it."""

    def __init__(self, count: int) -> None:
        self._parent = array("i", range(count))

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
    """Distinct texts by number, of which one may have several. Text that is too short for a run of words is like no
    other but itself. Memory holds 4 bytes of each, and some 50 while they are joined; the rest is in files.
    """

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._scratch.make("texts (key BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID")
        self._same = array("i")  # two by two
        self._numbers = array("i")
        self._signatures = Signatures()

    def add(self, number: int, text: str) -> None:
        """Take in a text of a number."""
        plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        if not plain:
            return
        key = digest(plain.encode("utf-8", "surrogatepass"))
        first = self._scratch.one("SELECT number FROM texts WHERE key = ?", (key,))
        if first is not None:
            if first != number:
                self._same.extend((first, number))
            return
        self._scratch.all("INSERT INTO texts VALUES (?, ?)", (key, number))
        one = text_signature(text, SHINGLE)
        if one is not None:
            self._signatures.add(one)
            self._numbers.append(number)

    def join(self, union: Union, threshold: float) -> None:
        """Join the numbers that have a text in common but for spaces and case, however short, and those whose texts are
        at least that similar, as far as a band of their signatures is equal.
        """
        for place in range(0, len(self._same), 2):
            union.join(self._same[place], self._same[place + 1])
        if len(self._numbers) < 2:
            return
        for band in range(bands(threshold)[0]):
            keys = np.concatenate([band_column(each, threshold, band) for each in self._signatures.blocks()])
            for places in _together(keys):
                self._compare(union, threshold, places)

    def close(self) -> None:
        """Forget everything."""
        self._signatures.close()

    def _compare(self, union: Union, threshold: float, places: Places) -> None:
        """Join those of a band that are alike. Each is compared with all that are not in its set yet."""
        for at in range(min(len(places), _MOST_IN_A_BAND)):
            first = self._numbers[places[at]]
            own = union.find(first)
            later = places[at + 1 :]
            others = later[[union.find(self._numbers[each]) != own for each in later.tolist()]] if len(later) else later
            if not len(others):
                break  # All that come after it are in one set.
            mine = self._signatures.at(places[at : at + 1])
            for begin in range(0, len(others), _AT_ONCE):
                some = others[begin : begin + _AT_ONCE]
                equal = np.count_nonzero(self._signatures.at(some) == mine, axis=1)
                for other in some[equal >= threshold * PERMUTATIONS].tolist():
                    union.join(first, self._numbers[other])


def _together(keys: Hashes) -> Iterator[Places]:
    """The places, in order, of keys that are there more than once."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begins = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    counts = np.diff(begins, append=len(keys))
    for begin, count in zip(begins[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
        yield order[begin : begin + count]
