"""Which of two is better, over the members of a group."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from agentworld.rewards.judges.asking import Fence, JudgeKind, ask, read_json
from agentworld.rewards.protocol import EvaluationError, RolloutGroup, Scope, Verdict

MOST_PAIRS = 500
_REASON = 200


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    better: Literal["A", "B", "tie"]


class PairwiseJudge(JudgeKind, frozen=True, kw_only=True):
    """Compares members two by two; a member's value is the mean of 1 for a win, 0.5 for a tie, 0 for a loss.

    Each pair is asked in both orders, and counts as a tie where the answers do not agree, as then it was the place that
    decided; the share of its pairs of which that is so is the member's `uncertainty`. `opponents`: each member meets so
    many others; 0 is all of them.
    """

    question: str = "Which agent does better what it was asked to?"
    opponents: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def scope(self) -> Scope:
        """A group."""
        return "group"

    def evaluate(self, subject: RolloutGroup) -> dict[str, Verdict]:
        """The share of wins of each member, with all comparisons in its details."""
        members = subject.members
        pairs = self._pairs(len(members))
        if not pairs:
            raise EvaluationError(f"{self.name}: group {subject.group_id} has {len(members)} members; two are needed")
        if len(pairs) > MOST_PAIRS:
            raise EvaluationError(
                f"{self.name}: {len(pairs)} comparisons are over {MOST_PAIRS}", hint="Set `opponents`"
            )
        task = self.task_of(members[0])
        shown = [self.shown(member) for member in members]
        ids = [member.trajectory.trajectory_id for member in members]
        results: list[list[tuple[str, float, dict[str, Any]]]] = [[] for _ in members]
        for one, other in pairs:
            first = self._compare(task, shown[one], shown[other], [ids[one], ids[other]])
            second = self._compare(task, shown[other], shown[one], [ids[other], ids[one]])
            there = {"A": 1.0, "B": 0.0, "tie": 0.5}[first.better]
            back = {"A": 0.0, "B": 1.0, "tie": 0.5}[second.better]
            score = there if there == back else 0.5
            facts = {"consistent": there == back, "reasons": [first.reason[:_REASON], second.reason[:_REASON]]}
            results[one].append((ids[other], score, facts))
            results[other].append((ids[one], 1.0 - score, facts))
        return {member: self._verdict(found) for member, found in zip(ids, results, strict=True)}

    def _pairs(self, count: int) -> list[tuple[int, int]]:
        """Everybody with everybody, or around a ring with the next `opponents`, each pair once."""
        if self.opponents == 0 or self.opponents >= count - 1:
            return [(one, other) for one in range(count) for other in range(one + 1, count)]
        ring = {(at, (at + step) % count) for at in range(count) for step in range(1, self.opponents + 1)}
        return sorted({(min(pair), max(pair)) for pair in ring})

    def _verdict(self, found: list[tuple[str, float, dict[str, Any]]]) -> Verdict:
        value = sum(score for _, score, _ in found) / len(found)
        comparisons = [{"with": other, "score": score, **facts} for other, score, facts in found[:50]]
        unsure = sum(not facts["consistent"] for _, _, facts in found) / len(found)
        return Verdict({self.reward: value}, {"comparisons": comparisons, "uncertainty": unsure})

    def _compare(self, task: str, one: str, other: str, judged: list[str]) -> _Choice:
        fence = Fence([task, one, other])
        system = (
            f"You compare the work of two agents, A and B. {fence.rule} {self.instructions}\n"
            "The order says nothing of their worth, nor does length. Answer with one JSON object and nothing else:"
            ' {"reason": "a short reason", "better": "A" or "B" or "tie"}'
        )
        parts = [fence.around("task", task)] if task else []
        user = "\n\n".join([*parts, fence.around("A", one), fence.around("B", other), self.question])
        return ask(self, system, user, lambda reply: read_json(reply, _Choice), judged)
