"""Decisions in memory: what the policies in force, and people, make of trajectories that have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agentworld.errors import NotFoundError
from agentworld.pool import rules
from agentworld.pool.decision_rules import (
    NOTHING,
    Compiled,
    Made,
    Numbered,
    Target,
    compile_policy,
    decide_by,
    exchanged,
    outcomes,
    relabelled,
    said,
    tags_of,
)
from agentworld.pool.memory import reviews
from agentworld.pool.memory.state import DecidedTarget, State
from agentworld.query.rules import WEIGHT
from agentworld.records import Decision, ReviewOrigin, RuleOutcome, Standing, Step, Trajectory


def redecide(state: State, there: Trajectory) -> bool:
    """Decide a trajectory and its steps by the policy in force, unless it is open; whether anything has changed."""
    if there.status == "open":
        return False
    policy = _policy(state, there.channel)
    changed = False
    for step_id in state.steps_of[there.trajectory_id]:
        step = state.steps[step_id].step
        if step.channel == there.channel:
            changed |= _by_policy(state, "step", step, policy)
    return _by_policy(state, "trajectory", there, policy) or changed


def holding(state: State, target: Target, there: Step | Trajectory) -> Callable[[Numbered], bool]:
    """Whether a rule holds for the target."""
    if target == "step":
        assert isinstance(there, Step)
        found = state.steps[there.step_id]
        return lambda one: state.step_matches(state.bound(one.rule.when), found)
    assert isinstance(there, Trajectory)
    return lambda one: state.trajectory_matches(state.bound(one.rule.when), there)


def make(state: State, policy: Compiled, target: Target, there: Step | Trajectory) -> Made:
    """What the policy makes of the target."""
    return decide_by(policy, target, holding(state, target, there))


def decide(state: State, sent: Sequence[tuple[Target, str, Decision]]) -> tuple[int, list[str]]:
    """Manual decisions; how many changed something, and the trajectories that are to be settled."""
    for number, (target, target_id, _) in enumerate(sent):
        if target_id not in (state.steps if target == "step" else state.trajectories):
            raise NotFoundError(f"no {target} {target_id!r}", path=f"decisions[{number}]")
    count = 0
    changed: dict[str, None] = {}
    for target, target_id, decision in sent:
        there = _target(state, target, target_id)
        if _by_hand(state, target, there, decision):
            count += 1
            changed[there.trajectory_id] = None
    return count, list(changed)


def listed(state: State, target: Target, target_id: str) -> list[Decision]:
    """Those on a step, or on a trajectory and its steps, in the order in which they were made."""
    if target == "step":
        wanted: set[tuple[str, str]] = {("step", target_id)}
    else:
        wanted = {("trajectory", target_id), *(("step", one) for one in state.steps_of.get(target_id, ()))}
    return [kept.decision for key, kept in state.decided.items() if key[:2] in wanted]


def would_stand(state: State, there: Trajectory, made: Made) -> str:
    """The readiness of a trajectory if a policy made this of it."""
    manual = state.decided.get(("trajectory", there.trajectory_id, "manual"))
    old = _words(state, "trajectory", there.trajectory_id)
    new = manual.said if manual is not None else said(None, made)
    reasons = exchanged(there.excluded_reason, old, new)
    return rules.trajectory_readiness(there.status, there.reward is not None, reasons, state.is_admitted(there))


def standing(state: State, target: Target, target_id: str) -> Standing:
    """Why a target is served or not."""
    if target_id not in (state.steps if target == "step" else state.trajectories):
        raise NotFoundError(f"no {target} {target_id!r}", path=f"{target}_id")
    there = _target(state, target, target_id)
    owner = state.trajectories[there.trajectory_id]
    own_reason = there.excluded_reason if target == "step" else None
    policy = _policy(state, owner.channel)
    held: list[RuleOutcome] = []
    if policy is not None and owner.status != "open":
        if target == "step" and there.channel == owner.channel:
            held += outcomes(policy, "step", holding(state, "step", there))
        held += outcomes(policy, "trajectory", holding(state, "trajectory", owner))
    failures = {
        one.evaluator: one.error or "failed"
        for _, one in state.evaluations.values()
        if one.state == "failed"
        and (one.target, one.target_id) in {("trajectory", owner.trajectory_id), (target, target_id)}
    }
    reasons = [rules.shown_reason(owner.status, owner.readiness, owner.excluded_reason), own_reason]
    return Standing(
        trajectory_id=owner.trajectory_id,
        step_id=target_id if target == "step" else None,
        readiness=rules.step_readiness(owner.readiness, own_reason),
        reasons=tuple(part for reason in reasons if reason is not None for part in reason.split("; ")),
        decisions=tuple(
            one for one in listed(state, "trajectory", owner.trajectory_id) if one.step_id in (None, target_id)
        ),
        policy=policy.version if policy is not None else None,
        rules=tuple(held),
        failures=dict(sorted(failures.items())),
    )


def forget(state: State, trajectory_id: str, steps: set[str], group_id: str | None) -> None:
    """What is decided, asked and said of a trajectory that goes, of its steps, and of its whole group."""
    for key in [key for key, kept in state.decided.items() if kept.decision.trajectory_id == trajectory_id]:
        del state.decided[key]
    for number in [number for number, one in state.reviews.items() if one.trajectory_id == trajectory_id]:
        del state.reviews[number]
    gone = {("trajectory", trajectory_id), ("group", group_id), *(("step", step_id) for step_id in steps)}
    for name in [name for name, (_, one) in state.evaluations.items() if (one.target, one.target_id) in gone]:
        del state.evaluations[name]


def _policy(state: State, channel: str) -> Compiled | None:
    active = state.active_policy(channel)
    return None if active is None else compile_policy(active.policy.rules, active.policy.default)


def _target(state: State, target: Target, target_id: str) -> Step | Trajectory:
    return state.steps[target_id].step if target == "step" else state.trajectories[target_id]


def _words(state: State, target: Target, target_id: str) -> str | None:
    for by in ("manual", "policy"):
        kept = state.decided.get((target, target_id, by))
        if kept is not None:
            return kept.said
    return None


def _by_policy(state: State, target: Target, there: Step | Trajectory, policy: Compiled | None) -> bool:
    target_id = there.step_id if isinstance(there, Step) else there.trajectory_id
    made = NOTHING if policy is None else make(state, policy, target, there)
    key = (target, target_id, "policy")
    before, manual = state.decided.get(key), state.decided.get((target, target_id, "manual"))
    if before is None and not made:
        return False
    words = None if manual is not None else said(None, made)
    old = _words(state, target, target_id)
    now = Decision(
        verdict=made.verdict,
        trajectory_id=there.trajectory_id,
        step_id=target_id if target == "step" else None,
        reason=made.reason,
        by="policy",
        rule=made.rule,
        policy=policy.version if policy is not None else None,
        tags=tags_of(made.labels),
        weight=made.labels.get(WEIGHT),
        source="policy",
        at=state.clock(),
    )
    if before is not None and made and msgspec.structs.replace(before.decision, at=now.at) == now:
        return False
    if made:
        state.decided[key] = DecidedTarget(now, words, dict(made.labels))
    else:
        del state.decided[key]
    labels = relabelled(there.labels, before.labels if before is not None else {}, made.labels)
    changed = _apply(state, there, old, manual.said if manual is not None else words, labels)
    if manual is None:
        _tell(state, now, before)
        _ask(state, target, target_id, made, "rule")
    return changed


def _by_hand(state: State, target: Target, there: Step | Trajectory, sent: Decision) -> bool:
    target_id = there.step_id if isinstance(there, Step) else there.trajectory_id
    key = (target, target_id, "manual")
    before, policy = state.decided.get(key), state.decided.get((target, target_id, "policy"))
    old = _words(state, target, target_id)
    origin: ReviewOrigin = "rule"
    if sent.verdict is None:
        if before is None:
            return False
        del state.decided[key]
        made = NOTHING if policy is None else Made(policy.decision.verdict, policy.decision.reason)
        words = said(None, made)
        if policy is not None:
            state.decided[target, target_id, "policy"] = policy._replace(said=words)
        now = sent if policy is None else policy.decision
        now = msgspec.structs.replace(now, by="policy", trajectory_id=there.trajectory_id)
    else:
        if before is not None and (before.decision.verdict, before.decision.reason, before.decision.source) == (
            sent.verdict,
            sent.reason,
            sent.source,
        ):
            return False
        words, made, origin = said(sent, NOTHING), Made(sent.verdict, sent.reason), "manual"
        now = msgspec.structs.replace(
            sent,
            trajectory_id=there.trajectory_id,
            step_id=target_id if target == "step" else None,
            at=sent.at or state.clock(),
        )
        state.decided[key] = DecidedTarget(now, words, {})
        if policy is not None:
            state.decided[target, target_id, "policy"] = policy._replace(said=None)
    _apply(state, there, old, words, there.labels)
    _tell(state, now, before or policy)
    _ask(state, target, target_id, made, origin)
    return True


def _apply(state: State, there: Step | Trajectory, old: str | None, new: str | None, labels: dict[str, object]) -> bool:
    reasons = exchanged(there.excluded_reason, old, new)
    changed = reasons != there.excluded_reason or labels != there.labels
    if isinstance(there, Step) and (reasons is None) != (there.excluded_reason is None):
        owner = state.trajectories[there.trajectory_id]
        if there.channel == owner.channel:
            sign = 1 if reasons is None else -1
            owner.sampled_tokens += sign * state.steps[there.step_id].prepared.sampled
    there.excluded_reason, there.labels = reasons, labels
    return changed


def _tell(state: State, now: Decision, before: DecidedTarget | None) -> None:
    if before is not None and (before.decision.verdict, before.decision.reason) == (now.verdict, now.reason):
        return
    if before is None and now.verdict is None:
        return
    data = {"verdict": now.verdict, "reason": now.reason, "by": now.by}
    state.add_event("decision.set", now.trajectory_id, now.step_id, data)


def _ask(state: State, target: Target, target_id: str, made: Made, origin: ReviewOrigin) -> None:
    if made.verdict == "review":
        reviews.ask(state, target, target_id, origin, made.reason or "", made.worth, holds_back=True)
    else:
        reviews.withdraw(state, target, target_id)
