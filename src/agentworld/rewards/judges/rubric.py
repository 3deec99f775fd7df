"""Many small questions in place of one large one: a weighted rubric of criteria that are met or not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from agentworld.records import BatchTrajectory
from agentworld.rewards.judges.asking import Fence, JudgeKind, Samples, ask, read_json
from agentworld.rewards.judges.uncertainty import without_margin
from agentworld.rewards.protocol import EvaluationError, Verdict

MOST_CRITERIA = 40
MOST_WEIGHT = 1e9
_EVIDENCE = 500


class Criterion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is so or not. A negative `weight` is of a thing that should not be."""

    id: str
    text: str
    weight: float = 1.0


class _Met(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    evidence: str
    met: bool


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    criteria: list[_Met]


class RubricJudge(JudgeKind, frozen=True, kw_only=True):
    """Asks whether each criterion is met, with evidence; the value is the weights that are met over all positive ones.

    `criteria`: up to 40, of which 10 to 40 atomic ones judge best; `criteria_field`: where in the task they stand, for
    rubrics that every task has of its own. Weights that are met and negative take away; the value stays from 0 to 1 (as
    HealthBench counts, arXiv 2505.08775). Each criterion is kept in the details. Of several samples the mean counts; a
    criterion is met there where more than half say so.
    """

    criteria: tuple[Criterion, ...] = ()
    criteria_field: str | None = None
    samples: Samples = 1

    added: ClassVar[Mapping[str, Any]] = {"samples": 1}

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.criteria) == bool(self.criteria_field):
            raise ValueError("a rubric needs either `criteria` or `criteria_field`")
        if self.criteria:
            check_criteria(self.criteria)

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """The share of the weights, and the word on each criterion."""
        criteria = self.criteria or self._of_task(subject)
        task, shown = self.task_of(subject), self.shown(subject)
        asked = "\n".join(f"{each.id}: {each.text}" for each in criteria)
        # Criteria of a task come from where the task does, so they are fenced as well.
        fence = Fence([task, shown, asked])
        system = (
            f"You check the work of an agent against criteria, each by itself. {fence.rule} {self.instructions}\n"
            "Answer with one JSON object and nothing else:"
            ' {"criteria": [{"id": "its id", "evidence": "a short quotation or what is missing", "met": true or false},'
            " ...]}, with each criterion once. A criterion that the work gives no evidence of is not met."
        )
        parts = [fence.around("task", task)] if task else []
        user = "\n\n".join([*parts, fence.around("work", shown), fence.around("criteria", asked)])
        judged = [subject.trajectory.trajectory_id]
        samples = [
            {each.id: each for each in ask(self, system, user, lambda reply: _read(reply, criteria), judged)}
            for _ in range(self.samples)
        ]
        shares = {each.id: sum(said[each.id].met for said in samples) / len(samples) for each in criteria}
        found = []
        for each in criteria:
            met = shares[each.id] > 0.5
            evidence = next(said[each.id].evidence for said in samples if said[each.id].met == met)
            found.append({"id": each.id, "weight": each.weight, "met": met, "evidence": evidence[:_EVIDENCE]})
        scores = [rubric_score(criteria, {name: one.met for name, one in said.items()}) for said in samples]
        details: dict[str, Any] = {"criteria": found}
        if self.samples > 1:
            weights = {each.id: each.weight for each in criteria}
            details |= {"samples": scores, "shares": shares, "uncertainty": without_margin(shares, weights)}
        return Verdict({self.reward: math.fsum(scores) / len(scores)}, details)

    def _of_task(self, run: BatchTrajectory) -> tuple[Criterion, ...]:
        found: Any = (run.trajectory.task or {}).get(self.criteria_field or "")
        try:
            criteria = msgspec.convert(found, tuple[Criterion, ...])
            check_criteria(criteria)
        except (msgspec.ValidationError, ValueError) as error:
            raise EvaluationError(
                f"{self.name}: the task of {run.trajectory.trajectory_id} has no rubric: {error}",
                path=f"task.{self.criteria_field}",
                hint='Give a list of {"id": ..., "text": ..., "weight": ...}',
            ) from None
        return criteria


def check_criteria(criteria: Sequence[Criterion]) -> None:
    """ValueError where a rubric has none, too many, one id twice, a weight beyond reason, or nothing to be earned."""
    if not 1 <= len(criteria) <= MOST_CRITERIA:
        raise ValueError(f"a rubric has 1 to {MOST_CRITERIA} criteria, not {len(criteria)}")
    ids = [each.id for each in criteria]
    if len(set(ids)) != len(ids) or not all(ids):
        raise ValueError("every criterion needs an id of its own")
    if not all(abs(each.weight) <= MOST_WEIGHT for each in criteria):
        raise ValueError(f"weights are numbers from {-MOST_WEIGHT:g} to {MOST_WEIGHT:g}")
    if not any(each.weight > 0 for each in criteria):
        raise ValueError("a rubric needs a criterion with a positive weight")


def rubric_score(criteria: Sequence[Criterion], met: dict[str, bool]) -> float:
    """Sum of the weights that are met over the sum of the positive ones, within 0 and 1."""
    earned = sum(each.weight for each in criteria if met[each.id])
    possible = sum(each.weight for each in criteria if each.weight > 0)
    return min(max(earned / possible, 0.0), 1.0)


def _read(reply: str, criteria: Sequence[Criterion]) -> list[_Met]:
    said = read_json(reply, _Answer).criteria
    wanted, given = {each.id for each in criteria}, [each.id for each in said]
    if len(given) != len(wanted) or set(given) != wanted:
        missing = ", ".join(sorted(wanted - set(given))[:5])
        raise ValueError(f"not each criterion once{f'; missing: {missing}' if missing else ''}")
    return said
