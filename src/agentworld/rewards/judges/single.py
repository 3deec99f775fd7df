"""One score for one trajectory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from agentworld.records import BatchTrajectory
from agentworld.rewards.judges.asking import Fence, JudgeKind, Samples, ask, read_json
from agentworld.rewards.judges.uncertainty import spread
from agentworld.rewards.protocol import Verdict

_REASON = 2000


class _Score(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    score: float


class Judge(JudgeKind, frozen=True, kw_only=True):
    """Asks `question` for a score from `minimum` to `maximum`, which becomes a value from 0 to 1."""

    question: str = "How well does the agent do what it was asked to?"
    minimum: float = 1.0
    maximum: float = 10.0
    samples: Samples = 1

    added: ClassVar[Mapping[str, Any]] = {"samples": 1}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.minimum < self.maximum:
            raise ValueError(f"minimum ({self.minimum:g}) has to be under maximum ({self.maximum:g})")

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """The score, with the judge's reason; of several samples their mean, with the reason of the nearest to it."""
        task, shown = self.task_of(subject), self.shown(subject)
        fence = Fence([task, shown])
        system = (
            f"You judge the work of an agent. {fence.rule} {self.instructions}\n"
            f"Answer with one JSON object and nothing else:"
            f' {{"reason": "a short reason", "score": a number from {self.minimum:g} to {self.maximum:g}}}'
        )
        parts = [fence.around("task", task)] if task else []
        user = "\n\n".join([*parts, fence.around("work", shown), self.question])
        judged = [subject.trajectory.trajectory_id]
        said = [ask(self, system, user, self._read, judged) for _ in range(self.samples)]
        values = [(each.score - self.minimum) / (self.maximum - self.minimum) for each in said]
        value = math.fsum(values) / len(values)
        nearest = min(said, key=lambda each: abs((each.score - self.minimum) / (self.maximum - self.minimum) - value))
        details: dict[str, Any] = {"score": nearest.score, "reason": nearest.reason[:_REASON]}
        if self.samples > 1:
            details |= {"samples": [each.score for each in said], "uncertainty": spread(values)}
        return Verdict({self.reward: value}, details)

    def _read(self, reply: str) -> _Score:
        said = read_json(reply, _Score)
        if not (math.isfinite(said.score) and self.minimum <= said.score <= self.maximum):
            raise ValueError(f"the score {said.score:g} is not from {self.minimum:g} to {self.maximum:g}")
        return said
