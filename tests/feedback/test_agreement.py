"""Agreement of annotators against published examples, and against the definitions written out naively."""

import math
import random
from itertools import permutations

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.feedback.agreement import (
    cohen_kappa,
    disagreement,
    fleiss_kappa,
    krippendorff_alpha,
    percent_agreement,
)

# Krippendorff (2011): four observers, twelve units, with values missing.
OBSERVERS = {
    "A": "1 2 3 3 2 1 4 1 2 . . .",
    "B": "1 2 3 3 2 2 4 1 2 5 . 3",
    "C": ". 3 3 3 2 3 4 2 2 5 1 .",
    "D": "1 2 3 3 2 4 4 1 2 5 1 .",
}
# Fleiss' kappa's usual example: how many of fourteen put each of ten subjects into each of five categories.
SUBJECTS = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]


def units_of(rows):
    columns = zip(*(row.split() for row in rows.values()), strict=True)
    return [{name: int(v) for name, v in zip(rows, column, strict=True) if v != "."} for column in columns]


@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_is_the_published_one(level, published):
    assert round(krippendorff_alpha(units_of(OBSERVERS), level), 3) == published


def test_kappa_is_the_published_one():
    units = []
    for row in SUBJECTS:
        values = [category for category, count in enumerate(row) for _ in range(count)]
        units.append({f"a{number}": value for number, value in enumerate(values)})
    assert round(fleiss_kappa(units), 3) == 0.210
    table = {("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15}
    two = [{"a": pair[0], "b": pair[1]} for pair, count in table.items() for _ in range(count)]
    assert cohen_kappa(two, "a", "b") == pytest.approx(0.4, abs=1e-12)


def drawn(seed, annotators=4, missing=0.3, values=5):
    chance = random.Random(seed)
    return [
        {f"a{n}": chance.randrange(values) for n in range(annotators) if chance.random() >= missing}
        for _ in range(chance.randrange(2, 25))
    ]


def naive_distance(level, values):
    def distance(one, other):
        if level == "nominal":
            return float(one != other)
        if level == "interval":
            return float((one - other) ** 2)
        low, high = min(one, other), max(one, other)
        between = sum(1 for value in values if low <= value <= high)
        ends = sum(1 for value in values if value == low) + sum(1 for value in values if value == high)
        return 0.0 if low == high else (between - ends / 2) ** 2

    return distance


def naive_alpha(units, level):
    units = [list(unit.values()) for unit in units if len(unit) > 1]
    values = [value for unit in units for value in unit]
    distance = naive_distance(level, values)
    observed = sum(distance(a, b) / (len(unit) - 1) for unit in units for a, b in permutations(unit, 2)) / len(values)
    expected = sum(distance(a, b) for a, b in permutations(values, 2)) / (len(values) * (len(values) - 1))
    return 1 - observed / expected


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_alpha_agrees_with_its_definition(level):
    for seed in range(30):
        units = drawn(seed)
        if len({value for unit in units if len(unit) > 1 for value in unit.values()}) > 1:
            assert krippendorff_alpha(units, level) == pytest.approx(naive_alpha(units, level), abs=1e-9)


@pytest.mark.parametrize("weights", ["equal", "linear", "quadratic"])
def test_cohens_kappa_agrees_with_its_definition(weights):
    for seed in range(30):
        pairs = [(u["a0"], u["a1"]) for u in drawn(seed, 2, 0.1) if len(u) == 2]
        ranks = {value: place for place, value in enumerate(sorted({v for pair in pairs for v in pair}))}
        worth = {"equal": lambda d: float(d > 0), "linear": float, "quadratic": lambda d: float(d * d)}[weights]
        observed = [worth(abs(ranks[a] - ranks[b])) for a, b in pairs]
        expected = [worth(abs(ranks[a] - ranks[b])) for a, _ in pairs for _, b in pairs]
        found = cohen_kappa([{"x": a, "y": b} for a, b in pairs], "x", "y", weights)
        if not pairs or not sum(expected):
            assert found is None
            continue
        naive = 1 - (sum(observed) / len(pairs)) / (sum(expected) / len(pairs) ** 2)
        assert found == pytest.approx(naive, abs=1e-9)


def test_fleiss_kappa_and_percent_agree_with_their_definitions():
    for seed in range(30):
        units = drawn(seed, 3, 0.0, 3)
        agreeing = [sum(a == b for a, b in permutations(unit.values(), 2)) / 6 for unit in units]
        values = [value for unit in units for value in unit.values()]
        chance = sum((values.count(value) / len(values)) ** 2 for value in set(values))
        observed = sum(agreeing) / len(agreeing)
        assert percent_agreement(units) == pytest.approx(observed, abs=1e-9)
        assert fleiss_kappa(units) == pytest.approx((observed - chance) / (1 - chance), abs=1e-9)


def test_who_agrees_always_has_one_and_what_is_not_defined_is_none():
    same = [{"a": value, "b": value, "c": value} for value in ("x", "y", "x")]
    assert [percent_agreement(same), fleiss_kappa(same), krippendorff_alpha(same)] == [1.0, 1.0, 1.0]
    assert cohen_kappa(same, "a", "b") == 1.0
    constant = [{"a": "x", "b": "x"}] * 3
    assert [fleiss_kappa(constant), krippendorff_alpha(constant), cohen_kappa(constant, "a", "b")] == [None] * 3
    assert percent_agreement(constant) == 1.0
    for nothing in ([], [{"a": 1}], [{}]):
        assert [percent_agreement(nothing), fleiss_kappa(nothing), krippendorff_alpha(nothing)] == [None] * 3
        assert cohen_kappa(nothing, "a", "b") is None


def test_what_a_measure_is_not_made_for_is_refused():
    with pytest.raises(InvalidRequestError, match="as many values"):
        fleiss_kappa([{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 2}])
    for level in ("ordinal", "interval"):
        with pytest.raises(InvalidRequestError, match="no number"):
            krippendorff_alpha([{"a": "good", "b": "bad"}], level)
    with pytest.raises(InvalidRequestError, match="no number"):
        cohen_kappa([{"a": True, "b": 2}], "a", "b", "linear")


def test_disagreement_is_the_share_of_the_most_possible_entropy():
    assert disagreement({"a": "x", "b": "x"}) == 0.0
    assert disagreement({"a": "x"}) == 0.0
    assert disagreement({"a": "x", "b": "y"}) == pytest.approx(1.0)
    shares = (2 / 3, 1 / 3)
    expected = -sum(p * math.log(p) for p in shares) / math.log(3)
    assert disagreement({"a": "x", "b": "x", "c": "y"}) == pytest.approx(expected, abs=1e-12)
