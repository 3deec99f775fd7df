"""MinHash signatures and banding for texts whose sets of word runs are alike.

Broder 1997, "On the resemblance and containment of documents": the share of equal minima of two sets under random
orders is an unbiased estimate of their Jaccard similarity, with standard deviation sqrt(J (1 - J) / 128). Banding as in
Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentworld.curation.checks.words import Hashes, mix, ngrams, words_of

PERMUTATIONS = 128
_ROWS_AT_ONCE = 256  # of products, so that they stay in the cache of a core
_TEXTS_AT_ONCE = 4_096
_MISSED_WEIGHT = 0.9  # of a similar pair that no band finds, against a candidate that is none, which costs only time

Signature = npt.NDArray[np.uint16]


@functools.cache
def _orders() -> tuple[Hashes, Hashes]:
    """Multipliers, which are odd, and addends of the 128 orders: the same everywhere and always."""
    numbers = mix(np.arange(1, 2 * PERMUTATIONS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return numbers[:PERMUTATIONS] | np.uint64(1), numbers[PERMUTATIONS:]


def signature(hashes: Hashes) -> Signature:
    """(128,) uint16: 16 bits of the least of each order over the set's hashes; they agree by chance in 1 of 65,536.

    The set must not be empty. An order is multiply-add modulo 2**64 (Dietzfelbinger 1996); its high half counts.
    """
    multipliers, addends = _orders()
    least = np.full(PERMUTATIONS, np.uint64(2**64 - 1))
    for begin in range(0, len(hashes), _ROWS_AT_ONCE):
        products = hashes[begin : begin + _ROWS_AT_ONCE, None] * multipliers
        products += addends
        np.minimum(least, products.min(axis=0), out=least)
    # The high half of the least, mixed so that its 16 bits are as good as any others.
    return (mix(least >> np.uint64(32)) & np.uint64(0xFFFF)).astype(np.uint16)


def text_signature(text: str, shingle: int, shortest: int = 1) -> Signature | None:
    """The signature of the text's runs of `shingle` words; None for fewer than `shortest` words, or than a run has."""
    words = words_of(text).hashes
    if len(words) < max(shortest, shingle):
        return None
    return signature(ngrams(words, shingle))


def similarity(one: Signature, other: Signature) -> float:
    """The estimate of the Jaccard similarity."""
    return float(np.count_nonzero(one == other)) / PERMUTATIONS


@functools.cache
def bands(threshold: float) -> tuple[int, int]:
    """(bands, rows a band) that miss least at and over the threshold for the candidates that they give under it.

    A pair of similarity s is a candidate with the probability 1 - (1 - s**rows)**bands.
    """
    points = (np.arange(1000) + 0.5) / 1000
    over = points >= threshold
    best: tuple[float, int, int] | None = None
    for rows in range(1, PERMUTATIONS + 1):
        count = PERMUTATIONS // rows
        candidate = 1 - (1 - points**rows) ** count
        missed = float((1 - candidate)[over].sum())
        wrong = float(candidate[~over].sum())
        cost = _MISSED_WEIGHT * missed + (1 - _MISSED_WEIGHT) * wrong
        if best is None or cost < best[0]:
            best = cost, count, rows
    assert best is not None
    return best[1], best[2]


def band_keys(one: Signature, threshold: float, salt: int) -> list[int]:
    """One number of 64 bits for each band; equal where the band is equal under one salt."""
    found: list[int] = band_key_table(one[None], threshold, [salt])[0].tolist()
    return found


def band_key_table(signatures: Signature, threshold: float, salts: Sequence[int]) -> Hashes:
    """(texts, bands) uint64: the `band_keys` of each row of (texts, 128) signatures under its salt."""
    count, rows = bands(threshold)
    base = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    found = np.empty((len(signatures), count), np.uint64)
    for begin in range(0, len(signatures), _TEXTS_AT_ONCE):
        part = signatures[begin : begin + _TEXTS_AT_ONCE, : count * rows].reshape(-1, count, rows)
        keys = base + np.array(salts[begin : begin + _TEXTS_AT_ONCE], np.uint64)[:, None]
        for row in range(rows):
            keys = mix(keys ^ part[:, :, row].astype(np.uint64))
        found[begin : begin + _TEXTS_AT_ONCE] = keys
    return found


def band_column(signatures: Signature, threshold: float, band: int) -> Hashes:
    """(texts,) uint64: the column of one band of `band_key_table`, without salts."""
    rows = bands(threshold)[1]
    keys = np.full(len(signatures), np.uint64((band + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)))
    for row in range(rows):
        keys = mix(keys ^ signatures[:, band * rows + row].astype(np.uint64))
    return keys
