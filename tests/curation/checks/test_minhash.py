"""Signatures estimate the Jaccard similarity as independent implementations do; bands find what is alike."""

import random

import datasketch
import numpy as np
import pytest

from agentworld.curation.checks.minhash import PERMUTATIONS, band_keys, bands, signature, similarity, text_signature
from agentworld.curation.checks.near_duplicates import SimilarTexts
from agentworld.curation.checks.words import mix, ngrams, words_of

# Four standard deviations of an estimate from 128 minima at a similarity of 0.5.
FOUR_DEVIATIONS = 4 * (0.25 / PERMUTATIONS) ** 0.5


def _pair(dice, size, shared):
    vocabulary = [f"w{number}" for number in dice.sample(range(10**6), 2 * size)]
    return vocabulary[:size], vocabulary[size - shared : 2 * size - shared]


def _hashes(words):
    return mix(words_of(" ".join(words)).hashes)


@pytest.mark.parametrize("shared", [0, 20, 100, 150, 190, 200])
def test_the_estimate_agrees_with_the_truth_and_with_datasketch(shared):
    dice = random.Random(shared)
    ours, theirs, truths = [], [], []
    for _ in range(12):
        one, other = _pair(dice, 200, shared)
        truths.append(shared / (400 - shared))
        ours.append(similarity(signature(_hashes(one)), signature(_hashes(other))))
        sketches = []
        for words in (one, other):
            sketch = datasketch.MinHash(num_perm=PERMUTATIONS)
            sketch.update_batch([word.encode() for word in words])
            sketches.append(sketch)
        theirs.append(sketches[0].jaccard(sketches[1]))
    assert np.abs(np.array(ours) - truths).max() <= FOUR_DEVIATIONS
    assert np.abs(np.array(ours) - theirs).max() <= 2**0.5 * FOUR_DEVIATIONS
    assert abs(np.mean(ours) - truths[0]) <= FOUR_DEVIATIONS / 12**0.5


def test_sets_decide_not_order_or_number():
    words = _hashes(["a", "b", "c", "d"])
    again = np.concatenate([words[::-1], words, words[:2]])
    assert np.array_equal(signature(words), signature(again))


_WHOLE = 2**64


def _mixed(value):
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % _WHOLE
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % _WHOLE
    return value ^ (value >> 31)


def _word(word):
    polynomial = sum(ord(character) * 0x9E3779B97F4A7C15**place for place, character in enumerate(word))
    return _mixed((polynomial + len(word)) % _WHOLE)


def _runs(words, count):
    for begin in range(len(words) - count + 1):
        value = 0
        for word in words[begin : begin + count]:
            value = (value * 0xD6E8FEB86659FD93 + _word(word)) % _WHOLE
        yield _mixed(value)


def _plain_signature(runs):
    numbers = [_mixed(number * 0x9E3779B97F4A7C15 % _WHOLE) for number in range(1, 2 * PERMUTATIONS + 1)]
    return [
        _mixed(min((run * (numbers[order] | 1) + numbers[order + PERMUTATIONS]) % _WHOLE for run in runs) >> 32)
        & 0xFFFF
        for order in range(PERMUTATIONS)
    ]


@pytest.mark.parametrize("count", [1, 5])
def test_signatures_are_what_plain_integers_say(count):
    """So that saved ones stay good wherever they are read."""
    words = ("the quick brown fox jumps over the lazy dog again and " * 40).split()[: 300 + count]
    one = text_signature(" ".join(words), count)
    assert one is not None
    assert one.tolist() == _plain_signature(list(_runs(words, count)))


def test_words_are_what_texts_are_made_of():
    text = "Hello, world! don_t stop 42: \u00c9t\u00e9\u2014caf\u00e9 \u4f60\u597d\u3002 x"
    words = words_of(text)
    found = [text[begin:end] for begin, end in zip(words.starts, words.ends, strict=True)]
    assert found == ["Hello", "world", "don_t", "stop", "42", "\u00c9t\u00e9", "caf\u00e9", "\u4f60", "\u597d", "x"]
    assert len(set(words.hashes.tolist())) == len(found)
    assert words_of("HELLO")[0] == words.hashes[0]
    assert len(ngrams(words.hashes, 3)) == len(found) - 2
    assert len(ngrams(words.hashes, 11)) == len(words_of("").hashes) == len(words_of("?!").hashes) == 0


def test_equal_words_have_equal_hashes_wherever_they_stand():
    far = words_of("alpha " * 1000 + "beta")
    assert len(set(far.hashes.tolist())) == 2
    assert far.hashes[-1] == words_of("beta").hashes[0]


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9])
def test_bands_find_nineteen_in_twenty_from_the_threshold_on(threshold):
    count, rows = bands(threshold)
    assert count * rows <= PERMUTATIONS
    points = np.linspace(threshold, 1, 50)
    assert (1 - (1 - points**rows) ** count).mean() > 0.95
    keys = band_keys(signature(_hashes(["a", "b"])), threshold, 1)
    assert len(keys) == len(set(keys)) == count
    assert not set(keys) & set(band_keys(signature(_hashes(["a", "b"])), threshold, 2))


def _texts(dice, words):
    return [dice.choice(words) for _ in range(200)]


def _changed(dice, text, words, count):
    changed = list(text)
    for at in dice.sample(range(len(text)), count):
        changed[at] = dice.choice(words)
    return changed


def test_what_is_alike_is_found_and_the_rest_is_not():
    dice = random.Random(5)
    words = [f"w{number}" for number in range(5_000)]
    texts = SimilarTexts(0.8, 5, 10_000, 20)
    originals = [_texts(dice, words) for _ in range(300)]
    for number, text in enumerate(originals):
        assert texts.add(f"o{number}", " ".join(text)) is None
    found = [texts.add(f"c{number}", " ".join(_changed(dice, text, words, 1))) for number, text in enumerate(originals)]
    assert [each is not None and each[0] for each in found] == [f"o{number}" for number in range(300)]
    # 30 of 200 words changed leave about half of the runs of five.
    far = [texts.add(f"f{number}", " ".join(_changed(dice, text, words, 30))) for number, text in enumerate(originals)]
    assert far == [None] * 300


def test_partitions_know_nothing_of_each_other():
    texts = SimilarTexts(0.8, 2, 100, 2)
    assert texts.add("a", "one two three four", "train") is None
    assert texts.add("b", "one two three four", "val") is None
    assert texts.add("c", "one two three four", "val") == ("b", 1.0)


def test_a_text_replaces_the_one_under_its_name():
    texts = SimilarTexts(0.8, 2, 100, 2)
    assert texts.add("a", "one two three four") is None
    assert texts.add("a", "one two three four") is None
    assert texts.add("a", "five six seven eight") is None
    assert texts.add("b", "one two three four") is None
    assert texts.add("c", "five six seven eight") == ("a", 1.0)
    assert texts.add("short", "one") is None


def test_the_oldest_are_forgotten():
    texts = SimilarTexts(0.8, 1, 8, 1)
    for number in range(9):
        assert texts.add(f"t{number}", f"only{number}") is None
    assert len(texts) == 7
    assert texts.add("again", "only0") is None
    assert texts.add("known", "only8") == ("t8", 1.0)
