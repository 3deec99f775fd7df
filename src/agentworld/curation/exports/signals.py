"""What is said of a step or of its trajectory as one number: a reward, a rating or a label, as it was frozen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.errors import ConfigError
from agentworld.records import Feedback, Step, Trajectory


class Value:
    """Reads one value by name: `reward` (the primary one), `reward.NAME`, `rating.NAME` or `label.NAME`.

    The mean of all who rated counts. A label counts where it is true, false or a number; true is 1, false 0.
    """

    def __init__(self, name: str) -> None:
        kind, _, rest = name.partition(".")
        if kind not in ("reward", "rating", "label") or (not rest and name != "reward"):
            raise ConfigError(
                f"{name!r} names no value", path="reward", hint="Use reward, reward.NAME, rating.NAME or label.NAME"
            )
        self.name = name
        self._kind, self._of = kind, rest

    def of_step(self, frozen: FrozenTrajectory, step: Step) -> float | None:
        """What is said of the step itself."""
        if self._kind == "rating":
            return self._rating([one for one in frozen.row.feedback if one.step_id == step.step_id])
        return self._of_record(step)

    def of_trajectory(self, frozen: FrozenTrajectory) -> float | None:
        """What is said of the trajectory itself."""
        if self._kind == "rating":
            return self._rating([one for one in frozen.row.feedback if one.step_id is None])
        return self._of_record(frozen.trajectory)

    def of_either(self, frozen: FrozenTrajectory, step: Step) -> float | None:
        """Of the step, else of its trajectory."""
        own = self.of_step(frozen, step)
        return self.of_trajectory(frozen) if own is None else own

    def _of_record(self, record: Step | Trajectory) -> float | None:
        if self._kind == "label":
            return number(record.labels.get(self._of))
        return record.reward if not self._of else record.rewards.get(self._of)

    def _rating(self, found: Sequence[Feedback]) -> float | None:
        named = {
            one.source: number(one.value) for one in found if one.kind == "rating" and (one.name or "") == self._of
        }
        values = [value for value in named.values() if value is not None]
        return sum(value / len(values) for value in values) if values else None


def values_of(frozen: FrozenTrajectory) -> set[str]:
    """The names of all values that are there."""
    records: list[Step | Trajectory] = [frozen.trajectory, *frozen.steps]
    found = {"reward" for record in records if record.reward is not None}
    found.update(f"reward.{name}" for record in records for name in record.rewards if name != "reward")
    found.update(f"label.{name}" for each in records for name, said in each.labels.items() if number(said) is not None)
    ratings = (said for said in frozen.row.feedback if said.kind == "rating" and said.name)
    return found | {f"rating.{said.name}" for said in ratings}


def number(value: Any) -> float | None:
    """A finite number, true and false as 1 and 0; else nothing."""
    if not isinstance(value, bool | int | float):
        return None
    try:
        found = float(value)
    except OverflowError:  # A whole number beyond floats.
        return None
    return found if math.isfinite(found) else None
