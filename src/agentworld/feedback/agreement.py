"""How far annotators agree, beyond what chance would give.

`Unit`: what the annotators of one target said, by annotator; a missing entry is a missing value. Every measure is 1
where all agree and, but for `percent_agreement`, 0 where they agree as often as chance; None where it is not defined:
nobody can be compared, or all values are one and the same, so that chance agrees as well.

Sources: J. Cohen, "A coefficient of agreement for nominal scales" (1960) and "Weighted kappa" (1968); J. L. Fleiss,
"Measuring nominal scale agreement among many raters" (1971); K. Krippendorff, "Computing Krippendorff's
alpha-reliability" (2011).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError

Level = Literal["nominal", "ordinal", "interval"]
Weights = Literal["equal", "linear", "quadratic"]
Unit = Mapping[str, Hashable]
Floats = npt.NDArray[np.float64]


def percent_agreement(units: Sequence[Unit]) -> float | None:
    """The share of pairs of annotators who said the same of a unit, each unit counting once."""
    shares = []
    for row in _counted(units, _codes(units)):
        total = row.sum()
        if total > 1:
            shares.append(float((row * (row - 1)).sum() / (total * (total - 1))))
    return float(np.mean(shares)) if shares else None


def cohen_kappa(units: Sequence[Unit], first: str, second: str, weights: Weights = "equal") -> float | None:
    """Cohen's kappa of two annotators over the units of both: 1 - observed / expected disagreement.

    `weights`: how bad it is to differ. equal: always as bad; linear, quadratic: by the number of values that lie
    between, values being numbers.
    """
    both = [unit for unit in units if first in unit and second in unit]
    pairs = [{"a": unit[first], "b": unit[second]} for unit in both]
    codes = _codes(pairs, numeric=weights != "equal")
    if not pairs:
        return None
    table = np.zeros((len(codes), len(codes)))
    for pair in pairs:
        table[codes[pair["a"]], codes[pair["b"]]] += 1.0
    table /= len(pairs)
    places = np.arange(len(codes), dtype=np.float64)
    distance = np.abs(places[:, None] - places[None, :])
    worth = {"equal": (distance > 0).astype(np.float64), "linear": distance, "quadratic": distance**2}[weights]
    expected = float((worth * np.outer(table.sum(axis=1), table.sum(axis=0))).sum())
    return None if expected == 0 else float(1.0 - (worth * table).sum() / expected)


def fleiss_kappa(units: Sequence[Unit]) -> float | None:
    """Fleiss' kappa; InvalidRequestError where units have different numbers of values, which it is not made for."""
    sizes = {len(unit) for unit in units}
    if len(sizes) > 1:
        raise InvalidRequestError(
            f"Fleiss' kappa needs as many values of each unit, not {sorted(sizes)}",
            path="units",
            hint="Use Krippendorff's alpha where values are missing",
        )
    if not units or sizes <= {0, 1}:
        return None
    counts = _counted(units, _codes(units))
    each = counts.sum(axis=1)[0]
    observed = float(((counts * (counts - 1)).sum(axis=1) / (each * (each - 1))).mean())
    share = counts.sum(axis=0) / counts.sum()
    expected = float((share**2).sum())
    return None if len(share) < 2 else (observed - expected) / (1.0 - expected)


def krippendorff_alpha(units: Sequence[Unit], level: Level = "nominal") -> float | None:
    """Krippendorff's alpha, for any number of annotators and missing values: 1 - observed / expected disagreement.

    `level`: nominal (values differ or do not), ordinal (numbers by rank) or interval (numbers by squared distance).
    Units with one value say nothing of agreement and are left out.
    """
    compared = [unit for unit in units if len(unit) > 1]
    codes = _codes(compared, numeric=level != "nominal")
    if len(codes) < 2:
        return None
    counts = _counted(compared, codes)
    sizes = counts.sum(axis=1)
    # Coincidences: how often two values were said of one unit, each unit weighing as many as it has values.
    paired = counts / (sizes - 1)[:, None]
    together = paired.T @ counts - np.diag(paired.sum(axis=0))
    total = together.sum(axis=1)
    distance = _distances(list(codes), total, level)
    observed = float((together * distance).sum())
    expected = float((np.outer(total, total) * distance).sum() / (total.sum() - 1))
    return 1.0 - observed / expected


def disagreement(unit: Unit) -> float:
    """Entropy of what was said of one unit, from 0 (all the same) to 1 (all different): bits over the most possible."""
    if len(unit) < 2:
        return 0.0
    counts = _counted([unit], _codes([unit]))[0]
    share = counts / counts.sum()
    return abs(float(-(share * np.log2(share)).sum() / np.log2(len(unit))))


def _codes(units: Sequence[Unit], *, numeric: bool = False) -> dict[Hashable, int]:
    """A number for each value, numbers in their order; InvalidRequestError for others where they must be numbers."""
    values = {value for unit in units for value in unit.values()}
    if numeric:
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidRequestError(
                    f"{value!r} is no number, so values have no order", path="level", hint="Use nominal"
                )
    order: Any = None if numeric else lambda value: (type(value).__name__, str(value))
    return {value: number for number, value in enumerate(sorted(values, key=order))}


def _counted(units: Sequence[Unit], codes: Mapping[Hashable, int]) -> Floats:
    """How many said each value (columns) of each unit (rows)."""
    counts = np.zeros((len(units), len(codes)))
    for row, unit in enumerate(units):
        for value in unit.values():
            counts[row, codes[value]] += 1.0
    return counts


def _distances(values: Sequence[Any], total: Floats, level: Level) -> Floats:
    """How far any two values are apart, squared; `total`: how often each was said."""
    if level == "nominal":
        return 1.0 - np.eye(len(values))
    if level == "interval":
        numbers = np.array(values, dtype=np.float64)
        return np.asarray((numbers[:, None] - numbers[None, :]) ** 2)
    # Ranks: all between two values, and half of each of the two.
    middle = np.cumsum(total) - total / 2.0
    return np.asarray((middle[:, None] - middle[None, :]) ** 2)
