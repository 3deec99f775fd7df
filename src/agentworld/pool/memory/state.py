"""What the in-memory store holds, and how records are read from it; the store holds its lock around every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from agentworld.errors import NotFoundError
from agentworld.pool import rules
from agentworld.pool.intake import Prepared, restore_arrays
from agentworld.pool.protocol import DeadLetter
from agentworld.pool.values import step_value, trajectory_value
from agentworld.query import Expression, Subject, bind, evaluate, parse
from agentworld.records import Event, Exchange, NewTrajectory, Policy, Reward, Step, Trajectory

R = TypeVar("R")


class StoredStep(NamedTuple):
    """A step without its arrays, the arrays, and the digest of what the caller said."""

    step: Step
    prepared: Prepared
    content: bytes
    ordinal: int


class State:
    """Dictionaries by id; ordinals grow in commit order."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.trajectories: dict[str, Trajectory] = {}
        self.ordinals: dict[str, int] = {}
        self.declared: set[str] = set()
        self.steps: dict[str, StoredStep] = {}
        self.steps_of: dict[str, list[str]] = {}
        self.exchanges: dict[str, tuple[bytes, Exchange]] = {}
        self.rewards: dict[tuple[str, str, str], float] = {}
        self.events: list[Event] = []
        self.dead: list[DeadLetter] = []
        self.policies: dict[str, Policy] = {}
        self.versions: dict[tuple[str, str], int] = {}
        self.paused = False
        self.blocks: set[bytes] = set()
        self.nodes: set[bytes] = set()
        self.tokens_in_tails = 0
        self.tokens_flat = 0

    def add_event(
        self,
        kind: str,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Append to the events."""
        event = Event(
            sequence=len(self.events) + 1,
            kind=kind,
            at=self.clock(),
            trajectory_id=trajectory_id,
            step_id=step_id,
            data=data or {},
        )
        self.events.append(event)

    def add_trajectory(self, new: NewTrajectory, trajectory_id: str) -> Trajectory:
        """Add an open trajectory that is not there."""
        settings = {name: getattr(copied(new), name) for name in rules.CREATION_FIELDS}
        there = Trajectory(trajectory_id=trajectory_id, created_at=self.clock(), **settings)
        self.trajectories[trajectory_id] = there
        self.ordinals[trajectory_id] = len(self.ordinals) + 1
        self.steps_of[trajectory_id] = []
        self.add_event("trajectory.created", trajectory_id)
        return there

    def trajectory(self, trajectory_id: str, path: str = "trajectory_id") -> Trajectory:
        """The live record; NotFoundError where there is none."""
        found = self.trajectories.get(trajectory_id)
        if found is None:
            raise NotFoundError(f"no trajectory {trajectory_id!r}", path=path)
        return found

    def refresh(self, there: Trajectory) -> None:
        """Derive what depends on status and rewards."""
        there.reward = there.rewards.get(rules.PRIMARY)
        there.readiness = rules.trajectory_readiness(there.status, there.reward is not None, there.excluded_reason)

    def set_reward(self, reward: Reward) -> bool:
        """Set a checked reward; False where the same value was there."""
        target = reward.step_id or reward.trajectory_id or ""
        value = float(reward.value)
        if self.rewards.get((target, reward.name, reward.source)) == value:
            return False
        self.rewards[target, reward.name, reward.source] = value
        if reward.step_id is not None:
            step = self.steps[reward.step_id].step
            step.rewards[reward.name] = value
            step.reward = step.rewards.get(rules.PRIMARY)
            trajectory_id = step.trajectory_id
        else:
            there = self.trajectories[target]
            there.rewards[reward.name] = value
            self.refresh(there)
            trajectory_id = target
        data = {"name": reward.name, "value": value, "source": reward.source}
        self.add_event("reward.set", trajectory_id, reward.step_id, data)
        return True

    def query(self, where: str | None, subject: Subject) -> Expression | None:
        """The expression to match records with, `now` being the moment of this call; None without one."""
        return bind(parse(where, subject), self.clock()) if where is not None else None

    def trajectory_matches(self, expression: Expression | None, trajectory: Trajectory) -> bool:
        """Whether the expression, if any, holds for the trajectory."""
        if expression is None:
            return True
        current = self._current(trajectory.policy)
        return evaluate(expression, lambda field: trajectory_value(trajectory, field, current))

    def step_matches(self, expression: Expression | None, found: StoredStep) -> bool:
        """Whether the expression, if any, holds for the step."""
        if expression is None:
            return True
        trajectory = self.trajectories[found.step.trajectory_id]
        step = found.step
        step.readiness = rules.step_readiness(trajectory.readiness, step.excluded_reason)
        current = self._current(step.policy)
        return evaluate(expression, lambda field: step_value(step, trajectory, field, current, found.prepared))

    def read(self, found: StoredStep, include: Sequence[str]) -> Step:
        """A copy of the step with what `include` asks for."""
        trajectory = self.trajectories[found.step.trajectory_id]
        step = copied(found.step)
        step.group_id = trajectory.group_id
        step.readiness = rules.step_readiness(trajectory.readiness, step.excluded_reason)
        usable = [s for s in self.steps_of[step.trajectory_id] if self.steps[s].step.excluded_reason is None]
        step.is_last = usable[-1:] == [step.step_id]
        if "messages" not in include:
            step.prompt_messages = step.response_message = step.tools = None
        kept = found.prepared
        restore_arrays(step, kept.prompt, kept.response, kept.mask, kept.logprobs, include)
        return step

    def _current(self, policy: Policy | None) -> Policy | None:
        return self.policies.get(policy.model) if policy else None


def copied(record: R) -> R:
    """A copy that shares nothing that can change."""
    return msgspec.json.decode(msgspec.json.encode(record), type=type(record))
