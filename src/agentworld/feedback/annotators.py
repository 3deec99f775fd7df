"""What annotators said in a pool: who said what of which target, how far they agree, and where somebody must look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations
from typing import Any, Literal

import msgspec

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.feedback import agreement
from agentworld.feedback.agreement import Level
from agentworld.feedback.content import Reading, all_feedback, matching_step
from agentworld.pool.protocol import Pool
from agentworld.query import parse
from agentworld.records import Feedback, NewReview, exact_json

Kind = Literal["label", "rating"]
MACHINES = ("check:", "implicit:", "ratings:")
"""Sources that begin like this are no annotators, unless they are named."""
_AT_ONCE = 500


class Said(msgspec.Struct, frozen=True):
    """What annotators said of one step or trajectory (`target`), by source: the last that each said."""

    target: Literal["step", "trajectory"]
    target_id: str
    values: dict[str, Any]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far the annotators of a label or rating agree; what is not defined is null.

    `targets`: that anybody judged; `compared`: that two or more did; `disagreed`: of those, with more than one value.
    `fleiss`: over the `fleiss_targets` that as many annotators judged as most did (`fleiss_annotators`). `cohen`: of
    each two annotators with a target in common, as [first, second, targets in common, kappa].
    """

    name: str
    kind: Kind
    level: Level
    targets: int
    compared: int
    disagreed: int
    annotators: dict[str, int]
    percent: float | None
    alpha: float | None
    fleiss: float | None
    fleiss_targets: int
    fleiss_annotators: int
    cohen: list[tuple[str, str, int, float | None]]


def said(
    pool: Reading,
    name: str,
    *,
    kind: Kind = "label",
    sources: Sequence[str] = (),
    where: str | None = None,
) -> list[Said]:
    """What was said under one name, in the order in which the targets were first judged.

    A label that its source took away is not there. `sources`: only these; without, all but MACHINES. `where`: only
    steps that match, and no trajectories.
    """
    if where is not None:
        parse(where, "steps")
    found: dict[tuple[Literal["step", "trajectory"], str], dict[str, Any]] = {}
    for one in all_feedback(pool, kind):
        if one.name != name or not is_annotator(one.source, sources):
            continue
        values = found.setdefault(_target(one), {})
        values.pop(one.source, None)
        if one.value is not None:
            values[one.source] = one.value
    kept = [Said(target, target_id, values) for (target, target_id), values in found.items() if values]
    if where is None:
        return kept
    return [one for one in kept if one.target == "step" and matching_step(pool, one.target_id, where) is not None]


def measure(name: str, found: Sequence[Said], kind: Kind = "label", level: Level | None = None) -> Agreement:
    """The agreement of annotators. `level`: of labels nominal, of ratings interval, unless it is given."""
    level = level or ("nominal" if kind == "label" else "interval")
    units = [{source: _value(value, level) for source, value in one.values.items()} for one in found]
    annotators = Counter(source for unit in units for source in unit)
    compared = [unit for unit in units if len(unit) > 1]
    sizes = Counter(len(unit) for unit in compared)
    # Of sizes that are as frequent, the larger one.
    size = max(sizes, key=lambda each: (sizes[each], each)) if sizes else 0
    together = [unit for unit in compared if len(unit) == size]
    weights: agreement.Weights = "equal" if level == "nominal" else "linear" if level == "ordinal" else "quadratic"
    cohen = []
    for first, second in combinations(sorted(annotators), 2):
        common = [unit for unit in compared if first in unit and second in unit]
        if common:
            cohen.append((first, second, len(common), agreement.cohen_kappa(common, first, second, weights)))
    return Agreement(
        name=name,
        kind=kind,
        level=level,
        targets=len(units),
        compared=len(compared),
        disagreed=sum(len(set(unit.values())) > 1 for unit in compared),
        annotators=dict(sorted(annotators.items())),
        percent=agreement.percent_agreement(compared),
        alpha=agreement.krippendorff_alpha(compared, level),
        fleiss=agreement.fleiss_kappa(together),
        fleiss_targets=len(together),
        fleiss_annotators=size,
        cohen=cohen,
    )


def disagreements(
    name: str, found: Sequence[Said], *, least: float = 0.0, tolerance: float = 0.0
) -> Iterator[NewReview]:
    """Reviews of the targets on which annotators disagree; worth is the entropy of what they said, from 0 to 1.

    `least`: only what is worth more. `tolerance`: numbers that are no further apart agree.
    """
    for one in found:
        values = list(one.values.values())
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(numbers) == len(values) and max(numbers) - min(numbers) <= tolerance:
            continue
        texts = {source: _value(value, "nominal") for source, value in one.values.items()}
        worth = agreement.disagreement(texts)
        if worth <= least:
            continue
        counts = sorted(Counter(texts.values()).items(), key=lambda item: (-item[1], str(item[0])))
        told = ", ".join(f"{str(value)[:60]} by {count}" for value, count in counts[:8])
        ids = {f"{one.target}_id": one.target_id}
        # A review says its target by one id; the pool finds the trajectory of a step.
        yield NewReview(reason=f"{name[:80]}: {told}", origin="disagreement", worth=worth, **ids)


def ask_for_reviews(pool: Pool, reviews: Sequence[NewReview]) -> tuple[int, int]:
    """Put reviews into the queue, the highest worth first; how many changed something, and how many targets are not
    there (yet)."""
    there = [one for one in sorted(reviews, key=lambda one: -one.worth) if _is_there(pool, one)]
    changed = sum(pool.add_reviews(there[start : start + _AT_ONCE]) for start in range(0, len(there), _AT_ONCE))
    return changed, len(reviews) - len(there)


def is_annotator(source: str, sources: Sequence[str]) -> bool:
    """Whether a source is one of somebody who judges; `sources`: those that were named, none for all."""
    return source in sources if sources else not source.startswith(MACHINES)


def _target(one: Feedback) -> tuple[Literal["step", "trajectory"], str]:
    if one.step_id is not None:
        return "step", one.step_id
    assert one.trajectory_id is not None
    return "trajectory", one.trajectory_id


def _value(value: Any, level: Level) -> Hashable:
    """A value that can be compared: a number as it is where numbers are meant, else its JSON."""
    if level == "nominal":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return exact_json.encode(float(value) if number else value).decode()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequestError(
            f"{exact_json.encode(value).decode()[:60]} is no number, so values have no order",
            path="level",
            hint="Use nominal",
        )
    return float(value)


def _is_there(pool: Pool, review: NewReview) -> bool:
    try:
        if review.step_id is not None:
            pool.get_step(review.step_id, include=())
        else:
            pool.get_trajectory(review.trajectory_id or "")
    except NotFoundError:
        return False
    return True
