"""Why a token tree forks: of each branch beyond the first at its place, the reason that the step on it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentworld.merge.stretches import Stretches
from agentworld.records import Step

ROLLOUT, UNSHARED, OTHER = "rollout", "unshared", "other"


@dataclass(frozen=True, slots=True)
class Forks:
    """`reasons`: of each stretch, why it branched off; None for those that did not."""

    reasons: list[str | None]

    def counts(self) -> dict[str, int]:
        """How many branches have each reason, the most frequent first."""
        found = Counter(reason for reason in self.reasons if reason is not None)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def fork_reasons(parts: Stretches, steps: Sequence[Step]) -> Forks:
    """`steps`: those of the tree's sequences, in their order.

    The branch that came first at its place goes on; each other is named by its own first step: by the step's fork
    reason, or `rollout` where that step is of another trajectory than the first branch's (`unshared` where they do not
    even begin alike), or else `other`, such as a second continuation that the pool sees no fork in.
    """
    first = parts.first()
    reasons: list[str | None] = [None] * len(parts)
    for siblings in _siblings(parts.parent):
        if len(siblings) < 2:
            continue
        oldest = min(siblings, key=lambda place: int(first[place]))
        begun = steps[int(first[oldest])]
        for place in siblings:
            if place == oldest:
                continue
            own = steps[int(first[place])]
            if own.trajectory_id == begun.trajectory_id:
                apart = OTHER
            else:
                apart = ROLLOUT if parts.parent[place] >= 0 else UNSHARED
            reasons[place] = own.fork_reason or apart
    return Forks(reasons)


def _siblings(parent: npt.NDArray[np.int64]) -> list[list[int]]:
    """Stretches that go on from the same one; the roots together."""
    found: dict[int, list[int]] = {}
    for place, above in enumerate(parent.tolist()):
        found.setdefault(above, []).append(place)
    return list(found.values())
