"""Thresholds of the checks, as a table `[checks]` of TOML sets them, and what they are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from agentworld.curation.checks.evaluation_sets import EvaluationSets
from agentworld.records import Policy

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`max_staleness`: versions behind the current policy that are still fresh; unset, `stale` says nothing.

    `correct`: name of the reward that says correctness (where a rollout lacks it, its primary reward counts), and
    `correct_from` the value from which it is correct. `reference_field`: where in the task the right answer stands.
    `shortest_reference`: references of fewer characters are not searched for. `repeats`: how often in a row an action
    or a cycle of up to 4 makes a loop; `total_repeats`: how often in all one action makes a repeated one.
    `outlier`: robust z-score from which a length is an outlier; `outlier_from`: lengths that a channel must have had.
    `similar`: Jaccard similarity of near-duplicates, over `shingle` words in a row. `remembered`: texts that
    near-duplicates are searched among, `shortest_text` the words that such a text has at least. `ngram`: words in a
    row that are contamination.
    """

    max_staleness: Annotated[int, msgspec.Meta(ge=0)] | None = None
    correct: str = "correct"
    correct_from: float = 1.0
    reference_field: str = "reference"
    shortest_reference: _Count = 4
    repeats: Annotated[int, msgspec.Meta(ge=2)] = 3
    total_repeats: Annotated[int, msgspec.Meta(ge=2)] = 6
    outlier: Annotated[float, msgspec.Meta(gt=0)] = 3.5
    outlier_from: _Count = 30
    similar: _Share = 0.8
    shingle: _Count = 5
    remembered: _Count = 150_000
    shortest_text: _Count = 20
    ngram: Annotated[int, msgspec.Meta(ge=3)] = 13


DEFAULTS = CheckSettings()


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """What checks read besides trajectories. `checks`: names of those to run; None is all.

    `current`: the policy that speaks now, for `stale`. `evaluation`: what must not be trained on, for `contaminated`.
    """

    settings: CheckSettings = DEFAULTS
    current: Policy | None = None
    evaluation: EvaluationSets | None = None
    checks: frozenset[str] | None = None

    def runs(self, name: str) -> bool:
        """Whether the check of that name is asked for."""
        return self.checks is None or name in self.checks
