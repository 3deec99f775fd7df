"""Rewards made of other rewards: weighted sums, gates, limits, and what is relative to the group.

They read the rewards that are set on their subject, so they come after the evaluators that give them. Where one is
missing, what is made of it fails, as a missing reward is not 0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal

import msgspec

from agentworld.records import BatchTrajectory
from agentworld.rewards.protocol import EvaluationError, EvaluatorKind, RolloutGroup, Scope, Verdict

EPSILON = 1e-8


class Composition(EvaluatorKind, frozen=True, kw_only=True):
    """What compositions have in common. `stored`: names that no evaluator of the file gives, but the record has."""

    stored: tuple[str, ...] = ()
    # Set by the registry where an input is only known for whole groups.
    per_group: bool = False

    @property
    def scope(self) -> Scope:
        """A trajectory, or a group where one of the inputs is a group's."""
        return "group" if self.per_group else "trajectory"

    def evaluate(self, subject: BatchTrajectory | RolloutGroup) -> Verdict | dict[str, Verdict]:
        """The composed value, for each member where the subject is a group."""
        if isinstance(subject, RolloutGroup):
            return {member.trajectory.trajectory_id: self._verdict(member) for member in subject.members}
        return self._verdict(subject)

    def _verdict(self, run: BatchTrajectory) -> Verdict:
        value, details = self.compose(run)
        return Verdict({self.reward: value}, details)

    @abstractmethod
    def compose(self, run: BatchTrajectory) -> tuple[float, dict[str, Any]]:
        """The value and what it is made of; each composition says how."""

    def read(self, run: BatchTrajectory, name: str) -> float:
        """The reward called `name`; EvaluationError where it is not set."""
        value = run.trajectory.rewards.get(name)
        if value is None:
            raise EvaluationError(
                f"{self.name}: {run.trajectory.trajectory_id} has no reward {name!r}",
                path=f"rewards.{name}",
                hint="The evaluator that gives it failed, has not run, or its `where` does not match",
            )
        return value


class WeightedSum(Composition, frozen=True, kw_only=True):
    """The sum of rewards times their `weights`; `normalise` divides by the sum of the weights' sizes."""

    weights: dict[str, float]
    normalise: bool = False

    def __post_init__(self) -> None:
        if not self.weights or not all(math.isfinite(each) for each in self.weights.values()):
            raise ValueError("weights needs names with finite numbers")
        if self.normalise and not any(self.weights.values()):
            raise ValueError("weights are all 0, which cannot be normalised")

    @property
    def needs(self) -> tuple[str, ...]:
        """The names that have weights."""
        return tuple(self.weights)

    def compose(self, run: BatchTrajectory) -> tuple[float, dict[str, Any]]:
        """The sum."""
        parts = {name: self.read(run, name) for name in self.weights}
        total = math.fsum(self.weights[name] * value for name, value in parts.items())
        whole = math.fsum(map(abs, self.weights.values())) if self.normalise else 1.0
        return total / whole, {"parts": parts}


class Gate(Composition, frozen=True, kw_only=True):
    """`value` where `gate` is at least `at_least`, else `closed`; `value` is not read where the gate is closed."""

    value: str
    gate: str
    at_least: float = 1.0
    closed: float = 0.0

    @property
    def needs(self) -> tuple[str, ...]:
        """Both."""
        return (self.value, self.gate)

    def compose(self, run: BatchTrajectory) -> tuple[float, dict[str, Any]]:
        """The gated value."""
        gate = self.read(run, self.gate)
        is_open = gate >= self.at_least
        return self.read(run, self.value) if is_open else self.closed, {"gate": gate, "open": is_open}


class Clip(Composition, frozen=True, kw_only=True):
    """`value`, but not under `low` and not over `high`."""

    value: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if (self.low is None and self.high is None) or self._low > self._high:
            raise ValueError("clip needs `low`, `high` or both, and low under high")

    @property
    def _low(self) -> float:
        return -math.inf if self.low is None else self.low

    @property
    def _high(self) -> float:
        return math.inf if self.high is None else self.high

    @property
    def needs(self) -> tuple[str, ...]:
        """The value."""
        return (self.value,)

    def compose(self, run: BatchTrajectory) -> tuple[float, dict[str, Any]]:
        """The value within its limits."""
        value = self.read(run, self.value)
        return min(max(value, self._low), self._high), {"value": value}


class Normalise(Composition, frozen=True, kw_only=True):
    """`value` relative to its group. `by`: `std` is (value - mean) / (deviation + 1e-8), with the deviation of the
    whole group; `mean` leaves the division out; `range` is from 0 for the least to 1 for the greatest.

    A group whose values are all equal gets 0 each (0.5 with `range`).
    """

    value: str
    by: Literal["std", "mean", "range"] = "std"
    per_group: bool = True

    def __post_init__(self) -> None:
        if not self.per_group:
            raise ValueError("normalise is always of a group")

    @property
    def needs(self) -> tuple[str, ...]:
        """The value."""
        return (self.value,)

    def evaluate(self, subject: BatchTrajectory | RolloutGroup) -> dict[str, Verdict]:
        """The relative value of each member."""
        if not isinstance(subject, RolloutGroup):
            raise EvaluationError(f"{self.name} judges a group")
        values = [self.read(member, self.value) for member in subject.members]
        mean = math.fsum(values) / len(values) if values else 0.0
        if self.by == "range":
            low, high = min(values, default=0.0), max(values, default=0.0)
            made = [(each - low) / (high - low) if high > low else 0.5 for each in values]
        else:
            equal = len(set(values)) < 2
            spread = math.sqrt(math.fsum((each - mean) ** 2 for each in values) / len(values)) if values else 0.0
            scale = spread + EPSILON if self.by == "std" else 1.0
            made = [0.0 if equal else (each - mean) / scale for each in values]
        ids = [member.trajectory.trajectory_id for member in subject.members]
        facts = {"mean": mean, "size": len(values)}
        return {
            member: Verdict({self.reward: now}, {**facts, "value": before})
            for member, now, before in zip(ids, made, values, strict=True)
        }


def for_groups(composition: Composition) -> Composition:
    """The same, judged a group at a time."""
    return msgspec.structs.replace(composition, per_group=True)
