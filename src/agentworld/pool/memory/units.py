"""How units stand in the in-memory store: records become members (see unit_rules)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from agentworld.pool import group_rules
from agentworld.pool.annotation_arrays import plain_values, unpack_values
from agentworld.pool.lease_rules import spaces_of, wanted_readiness
from agentworld.pool.memory.state import State, StoredStep
from agentworld.pool.signal_rules import standing_comparisons
from agentworld.pool.unit_rules import (
    Member,
    Verdict,
    judge_comparison,
    judge_group,
    judge_pair_of_group,
    judge_single,
    shuffled,
)
from agentworld.records import BatchSpec, Trajectory

_STEP_BITS = 20


class Candidate(NamedTuple):
    """A unit with its place in the spec's order, which ascends."""

    key: str
    place: tuple[float, int]
    verdict: Verdict
    is_offered: bool = True


class Units:
    """The units of one store, seen with one (resolved) spec."""

    def __init__(self, state: State, spec: BatchSpec, needs: tuple[str, ...], completed: dict[str, int]) -> None:
        self._state = state
        self._spec = spec
        self._needs = needs
        self._completed = completed
        self._wanted = wanted_readiness(spec)
        self._by_step = spec.unit == "step"
        self._expression = state.query(spec.where, "steps" if self._by_step else "trajectories")

    def candidates(self) -> Iterator[Candidate]:
        """Every unit of the channel that consumers may get, in no order."""
        match self._spec.unit:
            case "group":
                yield from self._groups("")
            case "pair":
                yield from self._groups("group:")
                yield from self._comparisons()
            case "trajectory":
                for trajectory_id, trajectory in self._state.trajectories.items():
                    member = self._member(trajectory)
                    place = self._place(self._state.ordinals[trajectory_id], self._since(trajectory_id), [trajectory])
                    yield Candidate(trajectory_id, place, self._single(member))
            case _:
                for step_id, found in self._state.steps.items():
                    if found.step.channel == self._spec.channel:
                        owner = self._state.trajectories[found.step.trajectory_id]
                        age = (self._since(owner.trajectory_id) << _STEP_BITS) + (found.step.step_index or 0)
                        place = self._place(found.ordinal, age, [owner])
                        yield Candidate(step_id, place, self._single(self._step_member(found)))

    def steps_of(self, member: Member) -> list[StoredStep]:
        """The steps that go with a member, in order."""
        if member.step_id is not None:
            return [self._state.steps[member.step_id]]
        return self._usable(member.trajectory_id)

    def arrays(self, names: list[str], targets: list[str]) -> dict[str, dict[str, Any]]:
        """Annotations by the id of what they are on, then by name."""
        found: dict[str, dict[str, Any]] = {}
        for (_, target, name), (_, packed) in self._state.annotations.items():
            if name in names and target in targets:
                values = plain_values(unpack_values(packed.dtype, packed.shape, packed.data))
                found.setdefault(target, {})[name] = values
        return found

    def _groups(self, prefix: str) -> Iterator[Candidate]:
        members: dict[str, list[Trajectory]] = {}
        for trajectory in self._state.trajectories.values():
            if trajectory.group_id is not None:
                members.setdefault(trajectory.group_id, []).append(trajectory)
        judge = judge_pair_of_group if prefix else judge_group
        for number, (group_id, group) in enumerate(self._state.groups.items(), start=1):
            own = members.get(group_id, [])
            offered = group_rules.is_offered(group)
            verdict = judge(offered, [self._member(t) for t in own], self._spec, self._state.policies)
            age = max((self._since(trajectory.trajectory_id) for trajectory in own), default=0)
            yield Candidate(prefix + group_id, self._place(number, age, own), verdict, offered)

    def _comparisons(self) -> Iterator[Candidate]:
        standing = {
            feedback.feedback_id for feedback in standing_comparisons(one for _, one in self._state.feedback.values())
        }
        for number, (feedback_id, (_, feedback)) in enumerate(self._state.feedback.items(), start=1):
            if feedback_id not in standing:
                continue
            targets = (feedback.step_id or feedback.trajectory_id or "", feedback.other_id or "")
            if feedback.step_id is None:
                found = [self._state.trajectories.get(target) for target in targets]
                sides = [None if one is None else self._member(one) for one in found]
            else:
                steps = [self._state.steps.get(target) for target in targets]
                sides = [None if one is None else self._step_member(one, by_trajectory=True) for one in steps]
            verdict = judge_comparison(sides[0], sides[1], True, self._spec, self._state.policies)
            yield Candidate("comparison:" + feedback_id, self._place(number, 2**40 + number, []), verdict)

    def _single(self, member: Member) -> Verdict:
        return judge_single(member, self._spec, self._state.policies)

    def _member(self, trajectory: Trajectory) -> Member:
        steps = self._usable(trajectory.trajectory_id)
        return Member(
            row=self._state.ordinals[trajectory.trajectory_id],
            trajectory_id=trajectory.trajectory_id,
            status=trajectory.status,
            served=group_rules.serves(trajectory.readiness),
            usable=bool(steps),
            able=all(_has(step, trajectory, self._needs) for step in steps),
            wanted=trajectory.readiness in self._wanted
            and self._state.trajectory_matches(None if self._by_step else self._expression, trajectory),
            masked=trajectory.masked,
            reward=trajectory.reward,
            rewards=dict(trajectory.rewards),
            policy=trajectory.policy,
        )

    def _step_member(self, found: StoredStep, by_trajectory: bool = False) -> Member:
        trajectory = self._state.trajectories[found.step.trajectory_id]
        matches = (
            self._state.trajectory_matches(self._expression, trajectory)
            if by_trajectory
            else self._state.step_matches(self._expression, found)
        )
        return self._member(trajectory)._replace(
            usable=found.step.excluded_reason is None and found.step.channel == self._spec.channel,
            able=_has(found, trajectory, self._needs),
            wanted=trajectory.readiness in self._wanted and matches,
            policy=found.step.policy,
            step=found.ordinal,
            step_id=found.step.step_id,
        )

    def _usable(self, trajectory_id: str) -> list[StoredStep]:
        found = (self._state.steps[step_id] for step_id in self._state.steps_of[trajectory_id])
        return [s for s in found if s.step.excluded_reason is None and s.step.channel == self._spec.channel]

    def _since(self, trajectory_id: str) -> int:
        return self._completed.get(trajectory_id, 0)

    def _place(self, number: int, age: int, trajectories: list[Trajectory]) -> tuple[float, int]:
        match self._spec.order:
            case "random":
                return shuffled(number, self._spec.seed), age
            case "priority":
                return -max((trajectory.priority for trajectory in trajectories), default=0.0), age
            case "freshest":
                return 0, -age
            case _:
                return 0, age


def _has(found: StoredStep, trajectory: Trajectory, needs: tuple[str, ...]) -> bool:
    step = found.step
    for need in needs:
        kind, _, name = need.partition(".")
        match kind:
            case "tokens":
                has = found.prepared.response is not None
            case "logprobs":
                has = found.prepared.logprobs is not None
            case "messages":
                has = step.prompt_messages is not None and step.response_message is not None
            case "annotation":
                has = name in step.annotations or name in trajectory.annotations
            case "label":
                has = name in step.labels or name in trajectory.labels
            case "logprob_space":
                has = found.prepared.logprobs is not None and step.logprob_space in spaces_of(need)
            case "step_reward":
                has = step.reward is not None
            case _:
                has = True  # reward: a matter of the trajectory's readiness.
        if not has:
            return False
    return True
