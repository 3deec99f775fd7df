"""How far a judge agrees with people: the same things judged by both.

Formulas: Cohen's kappa (Cohen 1960) of two raters and two classes; Pearson's and Spearman's correlation, the latter of
average ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentworld.errors import InvalidRequestError

Array = NDArray[np.float64]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two raters over the same things, yes or no. `kappa` is null where both always say the same one thing.

    `true_positives` and so on: the judge's word against the people's, who are right by definition.
    """

    count: int
    accuracy: float
    kappa: float | None
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A judge against people. `pearson` and `spearman` are null where one of both never changes.

    `bias`: mean of the judge's value minus the people's. `criteria`: the agreement on each criterion of a rubric.
    """

    overall: Agreement
    pearson: float | None
    spearman: float | None
    bias: float
    mean_absolute_error: float
    criteria: dict[str, Agreement] = {}


def calibrate(
    judged: Sequence[float],
    human: Sequence[float],
    *,
    threshold: float = 0.5,
    criteria: Mapping[str, tuple[Sequence[bool], Sequence[bool]]] | None = None,
) -> Calibration:
    """The report. `judged`, `human`: values of the same things in the same order, from `threshold` on a yes.

    `criteria`: by id, what the judge and what people said of it. InvalidRequestError for lists that do not go together.
    """
    ours, theirs = _pair(judged, human, "judged")
    return Calibration(
        overall=agreement(ours >= threshold, theirs >= threshold),
        pearson=_pearson(ours, theirs),
        spearman=_pearson(_ranks(ours), _ranks(theirs)),
        bias=float(np.mean(ours - theirs)),
        mean_absolute_error=float(np.mean(np.abs(ours - theirs))),
        criteria={
            name: agreement(*(each > 0.5 for each in _pair(*said, f"criteria.{name}")))
            for name, said in (criteria or {}).items()
        },
    )


def agreement(judged: NDArray[np.bool_], human: NDArray[np.bool_]) -> Agreement:
    """Accuracy, kappa and confusion of two arrays of truth values, shape (n,) each."""
    both, neither = int(np.sum(judged & human)), int(np.sum(~judged & ~human))
    ours, theirs = int(np.sum(judged & ~human)), int(np.sum(~judged & human))
    count = len(judged)
    accuracy = (both + neither) / count
    yes_ours, yes_theirs = (both + ours) / count, (both + theirs) / count
    chance = yes_ours * yes_theirs + (1 - yes_ours) * (1 - yes_theirs)
    return Agreement(
        count=count,
        accuracy=accuracy,
        kappa=(accuracy - chance) / (1 - chance) if chance < 1 else None,
        true_positives=both,
        false_positives=ours,
        false_negatives=theirs,
        true_negatives=neither,
    )


def report_lines(report: Calibration) -> list[str]:
    """The report for people to read."""
    whole = report.overall
    lines = [
        f"{whole.count} judged by both; accuracy {whole.accuracy:.3f}, kappa {_shown(whole.kappa)}",
        f"Pearson {_shown(report.pearson)}, Spearman {_shown(report.spearman)},"
        f" bias {report.bias:+.3f}, mean absolute error {report.mean_absolute_error:.3f}",
        f"people yes: judge yes {whole.true_positives}, no {whole.false_negatives};"
        f" people no: judge yes {whole.false_positives}, no {whole.true_negatives}",
    ]
    for name, each in sorted(report.criteria.items(), key=lambda item: item[1].accuracy):
        lines.append(f"{name}: accuracy {each.accuracy:.3f}, kappa {_shown(each.kappa)}, {each.count} judged")
    return lines


def _pair(judged: Sequence[float], human: Sequence[float], path: str) -> tuple[Array, Array]:
    ours, theirs = (np.asarray(each, dtype=np.float64) for each in (judged, human))
    if ours.ndim != 1 or ours.shape != theirs.shape or not len(ours):
        raise InvalidRequestError(
            f"{ours.shape} and {theirs.shape} judgements do not go together", path=path, hint="One of each for a thing"
        )
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise InvalidRequestError("a judgement is no finite number", path=path, hint="Leave out what was not judged")
    return ours, theirs


def _pearson(one: Array, other: Array) -> float | None:
    if np.ptp(one) == 0 or np.ptp(other) == 0:  # exactly, as the spread about a rounded mean need not be 0
        return None
    left, right = one - one.mean(), other - other.mean()
    scale = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(np.clip(np.dot(left, right) / scale, -1.0, 1.0)) if scale > 0 else None


def _ranks(values: Array) -> Array:
    """Ranks from 1, where equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Array = (last - (counts - 1) / 2.0)[place].astype(np.float64)
    return mean


def _shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
