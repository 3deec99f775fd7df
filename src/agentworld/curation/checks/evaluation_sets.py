"""Sets that a model will be measured on, as runs of words that training data must not hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.curation.checks.words import BARRIER, Hashes, Words, ngrams, words_of
from agentworld.errors import ConfigError

MOST_ITEMS_OF_A_RUN = 10
"""A run of words that more items have is the set's wording, not an item's: it is left out."""


class Match(NamedTuple):
    """An item that a text holds runs of. `share`: of the item's runs, how many are there; `start`, `end`: of the first
    in the text.
    """

    set: str
    item: int
    runs: int
    share: float
    start: int
    end: int


class Hits(NamedTuple):
    """Which runs of an item a text holds, and where the first of them is in the text."""

    runs: set[int]
    start: int
    end: int


class EvaluationSets:
    """Items by the hashes of their runs of `count` words. `skipped`: items that are shorter than one run."""

    def __init__(self, sets: Mapping[str, Iterable[str]], count: int) -> None:
        self.count = count
        self.skipped = 0
        self._names: list[tuple[str, int]] = []
        hashes: list[Hashes] = []
        owners: list[npt.NDArray[np.int64]] = []
        for name, items in sets.items():
            for number, item in enumerate(items, 1):
                parts = [ngrams(words_of(part).hashes, count) for part in item.split(BARRIER)]
                runs = np.unique(np.concatenate(parts))
                if not len(runs):
                    self.skipped += 1
                    continue
                owners.append(np.full(len(runs), len(self._names), np.int64))
                hashes.append(runs)
                self._names.append((name, number))
        every = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
        owner = np.concatenate(owners) if owners else np.empty(0, np.int64)
        unique, places, counts = np.unique(every, return_inverse=True, return_counts=True)
        kept = counts[places] <= MOST_ITEMS_OF_A_RUN if len(unique) else np.empty(0, bool)
        order = np.argsort(every[kept], kind="stable")
        self._hashes = every[kept][order]
        self._owners = owner[kept][order]
        self._totals = np.bincount(self._owners, minlength=len(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def matches(self, text: str) -> list[Match]:
        """The items that the text holds runs of, those with the largest share first."""
        return self.sorted_matches(self.hits(text))

    def hits(self, text: str) -> dict[int, Hits]:
        """The runs of each item that the text holds, by the item's number over all sets."""
        words = words_of(text)
        runs = ngrams(words.hashes, self.count)
        if not len(runs) or not len(self._hashes):
            return {}
        low = np.searchsorted(self._hashes, runs, "left")
        there = (low < len(self._hashes)) & (self._hashes[np.minimum(low, len(self._hashes) - 1)] == runs)
        return self._found(words, runs, np.flatnonzero(there)) if there.any() else {}

    def sorted_matches(self, hits: Mapping[int, Hits]) -> list[Match]:
        """What hits in one text, or in all parts of one, come to; those with the largest share first."""
        found = [
            Match(*self._names[owner], len(own.runs), len(own.runs) / int(self._totals[owner]), own.start, own.end)
            for owner, own in hits.items()
        ]
        return sorted(found, key=lambda match: (-match.share, match.set, match.item))

    def _found(self, words: Words, runs: Hashes, places: npt.NDArray[np.int64]) -> dict[int, Hits]:
        first: dict[int, int] = {}
        seen: dict[int, set[int]] = {}
        for place in places.tolist():
            low = int(np.searchsorted(self._hashes, runs[place], "left"))
            high = int(np.searchsorted(self._hashes, runs[place], "right"))
            for at in range(low, high):
                owner = int(self._owners[at])
                first.setdefault(owner, place)
                seen.setdefault(owner, set()).add(at)
        return {
            owner: Hits(own, int(words.starts[first[owner]]), int(words.ends[first[owner] + self.count - 1]))
            for owner, own in seen.items()
        }


def read_evaluation_sets(paths: Iterable[str | Path], count: int = 13) -> EvaluationSets:
    """The sets of these files, each under its name without ending.

    `.jsonl`: a line is an item, with all texts in it. Other files are text: an item is a paragraph. ConfigError names
    the file, and the line that is no JSON.
    """
    sets: dict[str, list[str]] = {}
    for path in map(Path, paths):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the evaluation set {path} cannot be read: {error}", path=str(path)) from None
        items = _lines(text, path) if path.suffix in (".jsonl", ".ndjson") else re.split(r"\n\s*\n", text)
        sets.setdefault(path.stem, []).extend(item for item in items if item.strip())
    return EvaluationSets(sets, count)


def _lines(text: str, path: Path) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield BARRIER.join(_texts(msgspec.json.decode(line)))
            except (msgspec.DecodeError, RecursionError):
                raise ConfigError(
                    f"line {number} of {path} is no JSON", path=f"{path}:{number}", hint="Write one JSON value a line"
                ) from None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
