"""What the in-memory store holds, and how records are read from it; the store holds its lock around every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from agentworld.errors import NotFoundError
from agentworld.pool import rules
from agentworld.pool.annotation_arrays import PackedArray
from agentworld.pool.base import check_where
from agentworld.pool.call_marks import CallMark
from agentworld.pool.events import TO_ALL, TOLD_TO_ALL, stored_channel
from agentworld.pool.exact_text import storable
from agentworld.pool.group_rules import is_admitted
from agentworld.pool.intake import Prepared
from agentworld.pool.keeping.records import Tombstone
from agentworld.pool.keys import StoredKey
from agentworld.pool.media.blob import Medium
from agentworld.pool.own_channel import Named, check_own
from agentworld.pool.protocol import DeadLetter, GatewayWorker
from agentworld.pool.step_arrays import restore_arrays
from agentworld.pool.values import step_value, trajectory_value
from agentworld.query import Expression, FieldRef, Subject, bind, evaluate, parse, with_texts
from agentworld.records import (
    ActivePolicy,
    Annotation,
    DatasetRow,
    DatasetVersion,
    Decision,
    Evaluation,
    Event,
    Exchange,
    Feedback,
    Follower,
    Group,
    NewTrajectory,
    Policy,
    Review,
    Reward,
    Step,
    Trajectory,
)

R = TypeVar("R")


class StoredStep(NamedTuple):
    """A step without its arrays, the arrays, and the digest of what the caller said."""

    step: Step
    prepared: Prepared
    content: bytes
    ordinal: int


class DecidedTarget(NamedTuple):
    """A decision, the reason that its target got by it, and the labels that it set."""

    decision: Decision
    said: str | None
    labels: dict[str, Any]


class BuiltDataset:
    """A version of a dataset: being built while it has no manifest."""

    def __init__(self, name: str, began_at: float) -> None:
        self.name = name
        self.began_at = began_at
        self.put_at: list[float] = []  # of each row
        self.rows: list[DatasetRow] = []
        self.version: DatasetVersion | None = None
        self.frozen = 0  # number of the event that told of it


class State:
    """Dictionaries by id; ordinals grow in commit order."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.tell: Callable[[], None] = lambda: None  # Wakes who waits for events.
        self.trajectories: dict[str, Trajectory] = {}
        self.ordinals: dict[str, int] = {}
        self.declared: set[str] = set()
        self.steps: dict[str, StoredStep] = {}
        self.steps_of: dict[str, list[str]] = {}
        self.exchanges: dict[str, tuple[bytes, Exchange]] = {}
        # By kind and id of the target, name and source, and so on; what was set last stands last.
        self.rewards: dict[tuple[str, str, str, str], Reward] = {}
        self.feedback: dict[str, tuple[str, Feedback]] = {}
        self.feedback_numbers: dict[str, int] = {}  # in the order of commits; none is given twice
        self.last_feedback = 0
        self.annotations: dict[tuple[str, str, str], tuple[Annotation, PackedArray]] = {}
        self.awaited: dict[tuple[Literal["step", "trajectory"], str], float] = {}
        self.groups: dict[str, Group] = {}
        self.rollouts_gone: dict[str, int] = {}  # deleted, and counted as ended, by group
        self.marks: dict[tuple[bytes, str], CallMark] = {}  # by mark and trajectory
        self.tombstones: dict[tuple[str, str], str | None] = {}
        self.buried: list[Tombstone] = []
        self.pins: dict[tuple[str, str, str], float] = {}  # by kind of owner, owner and trajectory
        self.datasets: dict[int, BuiltDataset] = {}
        self.last_dataset = 0
        self.media: dict[bytes, tuple[Medium, float]] = {}
        # Numbers are never used twice, as cursors must stay valid after deletions.
        self.last_step = 0
        self.last_dead = 0
        self.events: list[Event] = []
        self.event_channels: list[str | None] = []  # as stored_channel, one for each event
        self.dead: list[DeadLetter] = []
        self.policies: dict[str, Policy] = {}
        self.versions: dict[tuple[str, str], int] = {}
        self.paused = False
        self.pauses = 0
        self.workers: dict[str, GatewayWorker] = {}
        self.keys: dict[str, StoredKey] = {}
        self.curations: list[ActivePolicy] = []  # in the order in which they came into force
        self.decided: dict[tuple[str, str, str], DecidedTarget] = {}  # by kind and id of the target, and who decides
        self.reviews: dict[int, Review] = {}
        self.last_review = 0
        # By evaluator, and kind and id of the target; each with a number that grows.
        self.evaluations: dict[tuple[str, str, str], tuple[int, Evaluation]] = {}
        self.last_evaluation = 0
        self.followers: dict[str, Follower] = {}
        self.blocks: set[bytes] = set()
        self.nodes: set[bytes] = set()
        self.tool_sets: set[bytes] = set()
        self.tokens_in_tails = 0
        self.tokens_flat = 0

    def check_own(self, channel: str | None, named: Named) -> None:
        """ForbiddenError where something named is of another channel than the one that is given."""
        if channel is None:
            return
        found = {
            ("trajectory", one): self.trajectories[one].channel for one in named.trajectories & self.trajectories.keys()
        }
        found |= {("group", one): self.groups[one].channel for one in named.groups & self.groups.keys()}
        found |= {("step", one): self.steps[one].step.channel for one in named.steps & self.steps.keys()}
        check_own(channel, named, found)

    def add_event(
        self,
        kind: str,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        data: dict[str, Any] | None = None,
        *,
        channel: str | None = None,
    ) -> None:
        """Append to the events. `channel`: of the group that it is about, or of the trajectory that is gone."""
        if channel is None and trajectory_id in self.trajectories:
            channel = self.trajectories[trajectory_id].channel
        told = TO_ALL if kind in TOLD_TO_ALL else None if channel is None else stored_channel(channel)
        self.event_channels.append(told)
        event = Event(
            sequence=len(self.events) + 1,
            kind=kind,
            at=self.clock(),
            trajectory_id=trajectory_id,
            step_id=step_id,
            data=data or {},
        )
        self.events.append(event)
        self.tell()

    def move_events(self, trajectory_id: str, channel: str) -> None:
        """The trajectory turns out to be of another channel than its events say."""
        for event in self.events:
            if event.trajectory_id == trajectory_id:
                self.event_channels[event.sequence - 1] = stored_channel(channel)

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

    def keep_reward(self, kind: str, target_id: str, reward: Reward) -> bool:
        """Store a reward beside those of other sources; False where the same value was there."""
        key = (kind, target_id, reward.name, reward.source)
        known = self.rewards.pop(key, None)
        if known is not None and known.value == reward.value:
            self.rewards[key] = known
            return False
        created_at = reward.created_at or self.clock()
        self.rewards[key] = msgspec.structs.replace(reward, value=float(reward.value), created_at=created_at)
        return True

    def apply_reward(self, kind: str, target_id: str, reward: Reward) -> None:
        """Make a stored reward the effective value on its target, and tell of it; the caller settles the trajectory."""
        there = self.steps[target_id].step if kind == "step" else self.trajectories[target_id]
        there.rewards[reward.name] = float(reward.value)
        there.reward = there.rewards.get(rules.PRIMARY)
        data = {"name": reward.name, "value": float(reward.value), "source": reward.source}
        self.add_event("reward.set", there.trajectory_id, target_id if kind == "step" else None, data)

    def query(self, where: str | None, subject: Subject) -> Expression | None:
        """The expression to match records with, `now` being the moment of this call; None without one."""
        check_where(where)
        return with_texts(bind(parse(where, subject), self.clock()), storable) if where is not None else None

    def bound(self, expression: Expression) -> Expression:
        """An expression of a rule, to match records with."""
        return with_texts(bind(expression, self.clock()), storable)

    def active_policy(self, channel: str) -> ActivePolicy | None:
        """The policy that is in force for a channel."""
        return next((one for one in self.curations if one.policy.channel == channel and one.ended_at is None), None)

    def is_admitted(self, there: Trajectory) -> bool:
        """Whether its group serves a trajectory although it failed."""
        group = self.groups.get(there.group_id) if there.group_id is not None else None
        return group is not None and is_admitted(group.failures, group.state == "closed", there.status)

    def trajectory_matches(self, expression: Expression | None, trajectory: Trajectory) -> bool:
        """Whether the expression, if any, holds for the trajectory."""
        if expression is None:
            return True
        current = self._current(trajectory.policy)

        def value(field: FieldRef) -> Any:
            own = self._review(trajectory.trajectory_id) if field.field.name == "review" else None
            return trajectory_value(trajectory, field, current, own)

        return evaluate(expression, value)

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

    def _review(self, trajectory_id: str) -> Review | None:
        """The review of the trajectory itself."""
        of_trajectories = (one for one in self.reviews.values() if one.step_id is None)
        return next((one for one in of_trajectories if one.trajectory_id == trajectory_id), None)

    def _current(self, policy: Policy | None) -> Policy | None:
        return self.policies.get(policy.model) if policy else None


def copied(record: R) -> R:
    """A copy that shares nothing that can change."""
    # Not by JSON, which has one spelling for two lone surrogates and the character that both together make.
    return msgspec.convert(msgspec.to_builtins(record), type(record))


def shown(trajectory: Trajectory) -> Trajectory:
    """A copy as readers see it."""
    own = copied(trajectory)
    own.excluded_reason = rules.shown_reason(own.status, own.readiness, own.excluded_reason)
    return own
