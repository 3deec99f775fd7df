"""The order of a whole group, asked for at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from agentworld.records import BatchTrajectory, digest
from agentworld.rewards.judges.asking import Fence, JudgeKind, Samples, ask, read_json
from agentworld.rewards.judges.uncertainty import spread
from agentworld.rewards.protocol import EvaluationError, RolloutGroup, Scope, Verdict

MOST_MEMBERS = 26


class _Ranking(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    ranking: list[str]


class RankingJudge(JudgeKind, frozen=True, kw_only=True):
    """Asks for all members from best to worst; the best gets 1, the worst 0, the others what lies between, evenly.

    Members stand in an order that only their ids decide, another one in each of several samples. A ranking that leaves
    one out, or names one twice, is asked for again, and then a failed evaluation.
    """

    question: str = "Order the agents by how well they do what they were asked to, the best first."
    samples: Samples = 1

    added: ClassVar[Mapping[str, Any]] = {"samples": 1}

    @property
    def scope(self) -> Scope:
        """A group."""
        return "group"

    def evaluate(self, subject: RolloutGroup) -> dict[str, Verdict]:
        """The place of each member."""
        count = len(subject.members)
        if not 2 <= count <= MOST_MEMBERS:
            raise EvaluationError(
                f"{self.name}: group {subject.group_id} has {count} members, and 2 to {MOST_MEMBERS} can be ranked",
                hint="Use judge_pairwise with `opponents` for more",
            )
        said = [self._ranked(subject.members, sample) for sample in range(self.samples)]
        found = {}
        for member in subject.members:
            own = member.trajectory.trajectory_id
            values = [1.0 - places[own] / (count - 1) for places, _ in said]
            value = math.fsum(values) / len(values)
            place = min((places[own] for places, _ in said), key=lambda each: abs(1.0 - each / (count - 1) - value))
            details: dict[str, Any] = {"place": place + 1, "of": count, "reason": said[0][1][:1000]}
            if self.samples > 1:
                details |= {"samples": [places[own] + 1 for places, _ in said], "uncertainty": spread(values)}
            found[own] = Verdict({self.reward: value}, details)
        return found

    def _ranked(self, members: Sequence[BatchTrajectory], sample: int) -> tuple[dict[str, int], str]:
        """The place of each member from 0, by id, and the reason."""
        count, salt = len(members), [str(sample).encode()] if sample else []
        members = sorted(members, key=lambda each: digest(each.trajectory.trajectory_id.encode(), *salt))
        letters = [chr(ord("A") + place) for place in range(count)]
        task, shown = self.task_of(members[0]), [self.shown(member) for member in members]
        fence = Fence([task, *shown])
        system = (
            f"You compare the work of {count} agents, {', '.join(letters)}. {fence.rule} {self.instructions}\n"
            "The order says nothing of their worth, nor does length. Answer with one JSON object and nothing else:"
            ' {"reason": "a short reason", "ranking": ["the best agent\'s letter", ..., "the worst one\'s"]},'
            " with each letter once"
        )
        parts = [fence.around("task", task)] if task else []
        works = [fence.around(letter, text) for letter, text in zip(letters, shown, strict=True)]
        ids = [member.trajectory.trajectory_id for member in members]

        def read(reply: str) -> _Ranking:
            said = read_json(reply, _Ranking)
            if sorted(said.ranking) != letters:
                raise ValueError(f"the ranking {said.ranking} has not each of {', '.join(letters)} once")
            return said

        said = ask(self, system, "\n\n".join([*parts, *works, self.question]), read, ids)
        places = {letter: place for place, letter in enumerate(said.ranking)}
        return {member: places[letter] for member, letter in zip(ids, letters, strict=True)}, said.reason
