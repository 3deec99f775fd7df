"""What an explanation of units is made of: why one does not fit, and what was seen on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agentworld.pool.results import UnitReason
from agentworld.records import Policy, Step, Trajectory


class Why(NamedTuple):
    """Why a unit does not fit; `cause` and `need` as in UnitExplanation."""

    reason: UnitReason
    message: str
    cause: UnitReason | None = None
    need: str | None = None


class Seen:
    """What the steps had that an explainer looked at, each trajectory once: `steps`, how many of them lack what is
    required (`missing`), in which spaces log-probabilities are of those that have some, and the `policies` of
    trajectories.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.missing: Counter[str] = Counter()
        self.spaces: Counter[str | None] = Counter()
        self.policies: list[Policy | None] = []
        self._trajectories: set[str] = set()

    def note(self, trajectory: Trajectory, steps: Sequence[Step], lacking: Sequence[Sequence[str]]) -> None:
        """A trajectory, its usable steps, and what each of them lacks."""
        if trajectory.trajectory_id in self._trajectories:
            return
        self._trajectories.add(trajectory.trajectory_id)
        self.steps += len(steps)
        self.policies.append(trajectory.policy)
        self.spaces.update(
            step.logprob_space for step, needs in zip(steps, lacking, strict=True) if "logprobs" not in needs
        )
        for needs in lacking:
            self.missing.update(needs)
