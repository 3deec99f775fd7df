"""Why a unit is, or is not, handed out to a consumer: the first reason, found with the rules that leases go by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool import group_rules
from agentworld.pool.explained import Seen, Why
from agentworld.pool.finding_texts import times
from agentworld.pool.lease_rules import SPACE, UnitState, check_spec, spaces_of, wanted_readiness
from agentworld.pool.protocol import Pool
from agentworld.pool.results import Page, UnitExplanation, UnitReason
from agentworld.pool.signal_rules import standing_comparisons
from agentworld.pool.unit_rules import (
    Member,
    Verdict,
    judge_comparison,
    judge_group,
    judge_pair_of_group,
    judge_single,
)
from agentworld.records import BatchSpec, Feedback, Group, Policy, Step, Trajectory
from agentworld.records.methods import STEP_REWARD

_AVAILABLE: UnitState = "available"
_GIVE = """Give the spec, on the command line as --spec '{"method":"grpo"}'"""


class Delivered(NamedTuple):
    """Where a unit stands with a consumer; a lease whose time is over has given it back. `deadline`: of its lease."""

    state: UnitState = _AVAILABLE
    deliveries: int = 0
    batch_id: str | None = None
    deadline: float | None = None
    reason: str | None = None


class _Found(NamedTuple):
    """A unit: its key, what it consists of, and what the rules say of it."""

    key: str
    channel: str
    members: list[Member]
    verdict: Verdict
    group: Group | None = None


class _Fault(Exception):
    """Nothing of that unit is there for this consumer."""

    def __init__(self, reason: UnitReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Explainer:
    """Explains units of one spec to one consumer. `delivered`: where the unit of a key stands with the consumer.
    `seen`, `policies`: what the explanations so far have read.
    """

    def __init__(
        self, pool: Pool, consumer: str, spec: BatchSpec, delivered: Callable[[BatchSpec, str], Delivered]
    ) -> None:
        self._pool = pool
        self._delivered = delivered
        self._consumer = consumer
        self._spec, self._needs = check_spec(spec, consumer)
        self.policies: Mapping[str, Policy] = {}
        self.seen = Seen()

    def explain(self, target_id: str) -> UnitExplanation:
        """The first reason why the unit of this step, trajectory or group is not handed out, or that it is."""
        self.policies = self._pool.gateway_state().policies
        try:
            return self._explained(self._find(target_id))
        except _Fault as fault:
            return self._said(target_id, fault.reason, str(fault))

    def explain_comparison(self, feedback: Feedback) -> UnitExplanation:
        """The same of the pair that a comparison makes, which stands."""
        self.policies = self._pool.gateway_state().policies
        return self._explained(self._of_comparison(feedback))

    def _explained(self, found: _Found) -> UnitExplanation:
        spec = self._spec
        delivered = self._delivered(spec, found.key)
        standing = self._standing(found, delivered)
        if standing is not None:
            return standing
        if found.verdict.kind == "fits":
            if delivered.deliveries >= spec.max_deliveries:
                message = f"it was handed out {times(delivered.deliveries)}, of at most {spec.max_deliveries}"
                return self._said(found.key, "poisoned", f"{message}: the next lease sets it aside", delivered)
            return self._said(found.key, "fits", f"it fits, and comes as the order {spec.order} has it", delivered)
        why = self._why(found)
        said = self._said(found.key, why.reason, why.message, delivered)
        return msgspec.structs.replace(said, cause=why.cause, need=why.need)

    # --- what stands with the consumer ------------------------------------------------------------------------
    def _standing(self, found: _Found, delivered: Delivered) -> UnitExplanation | None:
        batch = f"batch {delivered.batch_id}"
        match delivered.state:
            case "leased":
                message = f"{self._consumer} holds it in {batch} until {delivered.deadline}"
                return self._said(found.key, "leased", message, delivered)
            case "acknowledged":
                return self._said(found.key, "acknowledged", f"{batch} was acknowledged with it", delivered)
            case "dropped" | "poisoned" as state:
                return self._said(found.key, state, f"it was {state}: {delivered.reason}", delivered)
            case _:
                return None

    def _said(self, key: str, reason: UnitReason, message: str, delivered: Delivered | None = None) -> UnitExplanation:
        known = delivered or Delivered()
        return UnitExplanation(
            consumer=self._consumer,
            unit=self._spec.unit or "step",
            key=key,
            channel=self._spec.channel,
            served=reason == "fits",
            reason=reason,
            message=message,
            deliveries=known.deliveries,
            batch_id=known.batch_id,
            deadline=known.deadline,
            spec=self._spec,
        )

    # --- the unit ---------------------------------------------------------------------------------------------
    def _find(self, target_id: str) -> _Found:
        spec, step, trajectory = self._spec, self._step(target_id), self._trajectory(target_id)
        if step is not None and trajectory is None:
            trajectory = self._trajectory(step.trajectory_id)
        group = None if spec.unit in ("step", "trajectory") else self._group(target_id, trajectory)
        if step is None and trajectory is None and group is None:
            raise NotFoundError(f"no step, trajectory or group {target_id!r}", path="id")
        if spec.unit == "group":
            if group is None:
                raise _Fault("no_group", "it is in no group, and this consumer is served groups")
            return self._of_group(group.group_id, group)
        if spec.unit == "pair":
            return self._pair(group, step, trajectory)
        if trajectory is None:
            raise NotFoundError(f"no step or trajectory {target_id!r}", path="id")
        if spec.unit == "trajectory":
            member = self._member(trajectory)
            verdict = judge_single(member, spec, self.policies)
            return _Found(trajectory.trajectory_id, trajectory.channel, [member], verdict)
        step = step or next(iter(self._pool.list_steps(trajectory_id=target_id, limit=1).items), None)
        if step is None:
            raise _Fault("no_steps", "its trajectory has no step, and this consumer is served steps")
        member = self._member_of_step(step, trajectory)
        return _Found(step.step_id, step.channel, [member], judge_single(member, spec, self.policies))

    def _pair(self, group: Group | None, step: Step | None, trajectory: Trajectory | None) -> _Found:
        if group is not None:
            return self._of_group("group:" + group.group_id, group)
        of_step = None if step is None else step.step_id
        of_trajectory = trajectory.trajectory_id if step is None and trajectory is not None else None
        said: list[Feedback] = []
        cursor: str | None = None
        while True:
            page = self._pool.list_feedback(
                step_id=of_step, trajectory_id=of_trajectory, kind="comparison", cursor=cursor, limit=1000
            )
            said += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        compared = standing_comparisons(said)
        if not compared:
            because = ", as each was taken back" if said else ""
            raise _Fault("no_pair", f"it is in no group and the better side of no comparison{because}")
        return self._of_comparison(compared[0])

    def _of_group(self, key: str, group: Group) -> _Found:
        members = [self._member(one) for one in self._every(group.group_id)]
        judge = judge_pair_of_group if key.startswith("group:") and self._spec.unit == "pair" else judge_group
        verdict = judge(group_rules.is_offered(group), members, self._spec, self.policies)
        return _Found(key, group.channel, members, verdict, group)

    def _of_comparison(self, feedback: Feedback) -> _Found:
        sides: list[Member | None] = []
        channel = self._spec.channel
        for one in (feedback.step_id or feedback.trajectory_id or "", feedback.other_id or ""):
            if feedback.step_id is None:
                there = self._trajectory(one)
                sides.append(None if there is None else self._member(there))
            else:
                step = self._step(one)
                owner = None if step is None else self._trajectory(step.trajectory_id)
                if step is None or owner is None:
                    sides.append(None)
                    continue
                wanted = self._member(owner).wanted
                sides.append(self._member_of_step(step, owner)._replace(wanted=wanted))
        verdict = judge_comparison(sides[0], sides[1], True, self._spec, self.policies)
        key = f"comparison:{feedback.feedback_id}"
        return _Found(key, channel, [one for one in sides if one is not None], verdict)

    def _every(self, group_id: str) -> list[Trajectory]:
        found: list[Trajectory] = []
        page: Page[Trajectory] = self._pool.list_trajectories(group_id=group_id, limit=1000)
        found += page.items
        while page.next_cursor is not None:
            page = self._pool.list_trajectories(group_id=group_id, cursor=page.next_cursor, limit=1000)
            found += page.items
        return found

    # --- members ----------------------------------------------------------------------------------------------
    def _member(self, trajectory: Trajectory) -> Member:
        name, spec = trajectory.trajectory_id, self._spec
        steps = [one for one in self._steps(name) if one.excluded_reason is None and one.channel == spec.channel]
        having = self._having(name)
        where = None if spec.unit == "step" else spec.where
        lacking = [self._lacking(one, trajectory, having) for one in steps]
        self.seen.note(trajectory, steps, lacking)
        return Member(
            row=0,
            trajectory_id=name,
            status=trajectory.status,
            served=group_rules.serves(trajectory.readiness),
            usable=bool(steps),
            able=not any(lacking),
            wanted=trajectory.readiness in wanted_readiness(spec) and self._matches("trajectories", name, where),
            masked=trajectory.masked,
            reward=trajectory.reward,
            rewards=dict(trajectory.rewards),
            policy=trajectory.policy,
        )

    def _member_of_step(self, step: Step, trajectory: Trajectory) -> Member:
        spec = self._spec
        lacking = self._lacking(step, trajectory, self._having(trajectory.trajectory_id))
        where = spec.where if spec.unit == "step" else None
        return self._member(trajectory)._replace(
            usable=step.excluded_reason is None and step.channel == spec.channel,
            able=not lacking,
            wanted=trajectory.readiness in wanted_readiness(spec) and self._matches("steps", step.step_id, where),
            policy=step.policy,
            step=0,
            step_id=step.step_id,
        )

    def _steps(self, trajectory_id: str, where: str | None = None) -> list[Step]:
        found: list[Step] = []
        cursor = None
        while True:
            page = self._pool.list_steps(trajectory_id=trajectory_id, where=where, cursor=cursor, limit=1000)
            found += page.items
            if (cursor := page.next_cursor) is None:
                return found

    def _having(self, trajectory_id: str) -> dict[str, set[str]]:
        """The steps of a trajectory that have what is asked for of each, by what that is."""
        asked = {need: need for need in self._needs if need in ("tokens", "logprobs", "messages")}
        asked |= {need: "logprobs" for need in self._needs if need.startswith(SPACE)}
        there = {name: {one.step_id for one in self._steps(trajectory_id, f"has {name}")} for name in asked.values()}
        return {need: there[name] for need, name in asked.items()}

    def _lacking(self, step: Step, trajectory: Trajectory, having: Mapping[str, set[str]]) -> list[str]:
        """What the step lacks of what is required."""
        lacking = []
        for need in self._needs:
            kind, _, name = need.partition(".")
            if kind == "annotation":
                has = name in step.annotations or name in trajectory.annotations
            elif kind == "label":
                has = name in step.labels or name in trajectory.labels
            elif need == STEP_REWARD:
                has = step.reward is not None
            elif kind == "logprob_space":
                has = step.step_id in having[need] and step.logprob_space in spaces_of(need)
            else:
                has = need not in having or step.step_id in having[need]
            if not has:
                lacking.append(need)
        return lacking

    def _matches(self, subject: str, name: str, where: str | None) -> bool:
        if where is None:
            return True
        if subject == "steps":
            return bool(self._pool.list_steps(where=f"({where}) and step_id == '{name}'", limit=1).items)
        return bool(self._pool.list_trajectories(where=where, trajectory_id=name, limit=1).items)

    def _step(self, name: str) -> Step | None:
        try:
            return self._pool.get_step(name, include=())
        except NotFoundError:
            return None

    def _trajectory(self, name: str) -> Trajectory | None:
        try:
            return self._pool.get_trajectory(name)
        except NotFoundError:
            return None

    def _group(self, name: str, trajectory: Trajectory | None) -> Group | None:
        wanted = name if trajectory is None else trajectory.group_id
        if wanted is None:
            return None
        try:
            return self._pool.get_group(wanted)
        except NotFoundError:
            return None

    # --- why not ----------------------------------------------------------------------------------------------
    def _why(self, found: _Found) -> Why:
        """The first reason that keeps a unit which does not fit."""
        spec, verdict, group = self._spec, found.verdict, found.group
        if found.channel != spec.channel:
            return Why("channel", f"it is in the channel {found.channel!r}, {spec.channel!r} is asked for")
        if verdict.kind in ("stale", "equal"):
            reason: UnitReason = "stale" if verdict.kind == "stale" else "equal"
            return Why(reason, f"{verdict.reason}: the next lease drops it")
        if group is not None and not group_rules.is_offered(group):
            until = f" or its time is over, at {group.timeout_at}" if group.timeout_at is not None else ""
            have = "has" if group.ended == 1 else "have"
            wanted = (
                f"{group.ended} of {group.size} rollouts {have} ended" if group.size is not None else "its time runs"
            )
            return Why("group_open", f"its group is served once it has closed: {wanted}{until}")
        failing = [(member, why) for member in found.members if (why := self._why_member(member)) is not None]
        if group is not None:
            wanted_count = spec.rollouts or 1 if spec.unit == "group" else 2
            fitting = len(found.members) - len(failing)
            if fitting < wanted_count:
                first = f"; {failing[0][0].trajectory_id}: {failing[0][1].message}" if failing else ""
                most = Counter((why.reason, why.need) for _, why in failing).most_common(1)
                cause, need = most[0][0] if most else (None, None)
                fit, are = "fits" if fitting == 1 else "fit", "is" if wanted_count == 1 else "are"
                message = f"{fitting} of its trajectories {fit}, {wanted_count} {are} asked for{first}"
                return Why("too_few", message, cause, need)
            if spec.unit == "pair":
                return Why("no_pair", "the rewards of its trajectories do not differ by enough")
        if failing:
            return failing[0][1]
        if spec.max_staleness is not None:
            lag = f"{spec.max_staleness} version{'' if spec.max_staleness == 1 else 's'}"
            return Why("stale", f"it waits for a policy that is at most {lag} behind")
        if spec.unit == "pair":
            return Why("no_pair", "one side of the comparison is not there")
        return Why("waits", "none of its trajectories can be trained on")

    def _why_member(self, member: Member) -> Why | None:
        """The first reason that keeps one trajectory or step."""
        spec = self._spec
        trajectory = self._pool.get_trajectory(member.trajectory_id)
        if not member.served:
            why = f" ({trajectory.excluded_reason})" if trajectory.excluded_reason else ""
            return Why("readiness", f"its trajectory is {trajectory.readiness}{why}")
        if not member.usable:
            if member.step_id is None:
                return Why("no_steps", f"no step of it in the channel {spec.channel!r} can be trained on")
            step = self._pool.get_step(member.step_id, include=())
            if step.excluded_reason is not None:
                return Why("excluded", f"the step is excluded: {step.excluded_reason}")
            return Why("channel", f"the step is in the channel {step.channel!r}, {spec.channel!r} is asked for")
        if member.masked and spec.unit != "group":
            return Why("masked", "it is served for the statistics of its group alone")
        if trajectory.readiness not in wanted_readiness(spec):
            message = f"its trajectory is {trajectory.readiness}, and has to be ready: it has no reward"
            return Why("readiness", message, need="reward")
        if not member.able and not member.counts_only:
            having, steps = self._having(member.trajectory_id), self._steps(member.trajectory_id)
            for step in steps:
                if step.excluded_reason is None and member.step_id in (None, step.step_id):
                    for need in self._lacking(step, trajectory, having):
                        return Why("lacks", f"the step {step.step_id} has no {need}", need=need)
        if not member.wanted:
            return Why("where", f"it does not match {spec.where}")
        return None


def with_spec(pool: Pool, consumer: str, spec: BatchSpec | None) -> BatchSpec:
    """The spec that is given, or that of the consumer's latest batch; InvalidRequestError where it had none."""
    if spec is not None:
        return spec
    for batch in pool.list_batches(consumer=consumer, limit=10).items:
        if batch.spec is not None:
            return batch.spec
    raise InvalidRequestError(
        f"{consumer} has had no batch, so that nobody knows what it asks for", path="spec", hint=_GIVE
    )
