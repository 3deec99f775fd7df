"""Which replies are to be imitated: not those that their own data set says are not to be trained on, nor the worse ones
of comparisons."""

from __future__ import annotations

from collections import Counter

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.pool.signal_rules import standing_comparisons
from agentworld.records import Step

WEIGHT = "training_weight"
"""The label of a reply whose data set weighs it; 0 says that it is context alone."""


def imitated(frozen: FrozenTrajectory, left_out: Counter[str]) -> list[Step]:
    """The steps of a row without those: counted as `weight_zero` and `not_preferred`."""
    worse = {
        one.other_id
        for one in standing_comparisons(frozen.row.feedback)
        if one.step_id is not None and one.other_id is not None
    }
    kept: list[Step] = []
    for step in frozen.steps:
        weight = step.labels.get(WEIGHT)
        if isinstance(weight, int | float) and weight == 0:
            left_out["weight_zero"] += 1
        elif step.step_id in worse:
            left_out["not_preferred"] += 1
        else:
            kept.append(step)
    return kept
