"""What a run has done, by evaluator."""

from __future__ import annotations

import threading
from typing import Literal

import msgspec

from agentworld.rewards.protocol import Evaluator, Verdict

Ending = Literal["evaluated", "cached", "failed", "skipped", "due"]


class Tally(msgspec.Struct, kw_only=True):
    """Of one evaluator. `skipped`: not tried, as it rests after many failures. `due`: of a dry run, what is to be done.

    `total` and `valued`: sum and count of its first value, over what was evaluated or known; `seconds`: of evaluations.
    """

    evaluated: int = 0
    cached: int = 0
    failed: int = 0
    skipped: int = 0
    due: int = 0
    total: float = 0.0
    valued: int = 0
    seconds: float = 0.0
    error: str | None = None

    @property
    def mean(self) -> float | None:
        """Mean of its first value, None where it gave none."""
        return self.total / self.valued if self.valued else None

    @property
    def seconds_each(self) -> float | None:
        """Seconds of an evaluation, None where there was none."""
        tried = self.evaluated + self.failed
        return self.seconds / tried if tried else None

    def plus(self, other: Tally | None) -> Tally:
        """Both together."""
        if other is None:
            return self
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Tally(**counts, error=self.error or other.error)


_COUNTS = ("evaluated", "cached", "failed", "skipped", "due", "total", "valued", "seconds")


class RunReport(msgspec.Struct, kw_only=True):
    """A whole run. `resting`: evaluators that rested at its end, each with its latest error."""

    evaluators: dict[str, Tally]
    trajectories: int = 0
    groups: int = 0
    resting: dict[str, str] = {}

    @property
    def failed(self) -> int:
        """How many evaluations failed or were skipped."""
        return sum(each.failed + each.skipped for each in self.evaluators.values())


class Counting:
    """Tallies that several threads count in."""

    def __init__(self, names: list[str]) -> None:
        self._lock = threading.Lock()
        self._tallies = {name: Tally() for name in names}

    def count(
        self,
        evaluator: Evaluator,
        ending: Ending,
        verdicts: dict[str, Verdict] | None,
        seconds: float,
        error: str | None,
    ) -> None:
        """One subject that an evaluator is done with."""
        with self._lock:
            tally = self._tallies[evaluator.name]
            setattr(tally, ending, getattr(tally, ending) + 1)
            tally.seconds += seconds
            tally.error = error or tally.error
            for verdict in (verdicts or {}).values():
                shown = evaluator.gives[0] if evaluator.gives else next(iter(verdict.values), "")
                if shown in verdict.values:
                    tally.total += verdict.values[shown]
                    tally.valued += 1

    def recover(self, name: str, skipped: int) -> None:
        """Up to so many that were skipped are tried after all."""
        with self._lock:
            self._tallies[name].skipped -= min(skipped, self._tallies[name].skipped)

    def tallies(self) -> dict[str, Tally]:
        """As they are now."""
        with self._lock:
            return {name: msgspec.structs.replace(tally) for name, tally in self._tallies.items()}
