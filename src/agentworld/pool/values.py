"""Field values of records, for evaluating `where` outside SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentworld.pool.exact_text import storable
from agentworld.pool.intake import Prepared
from agentworld.pool.rules import shown_reason, staleness
from agentworld.query import FieldRef
from agentworld.records import Policy, Readiness, Review, Step, Trajectory

REVIEWED = ("waiting", "skipped", "accepted", "rejected")
"""What the field `review` can be."""


def reviewed(review: Review | None) -> str | None:
    """One of REVIEWED; None where nobody asks for the review, or not any more."""
    if review is None or review.state == "withdrawn":
        return None
    if review.state == "done":
        return f"{review.verdict}ed"
    return "skipped" if review.skipped_by else "waiting"


def trajectory_value(
    trajectory: Trajectory, reference: FieldRef, current: Policy | None, review: Review | None = None
) -> Any:
    """The value of a field of a trajectory; `current`: the policy of its model that speaks now; `review`: its own.

    Texts inside JSON are as stores write them, so that their order and what is like them is the same in all stores.
    """
    if reference.field.name == "review":
        return reviewed(review)
    return _stored(_trajectory_value(trajectory, reference, current), reference)


def _trajectory_value(trajectory: Trajectory, reference: FieldRef, current: Policy | None) -> Any:
    policy = trajectory.policy
    match reference.field.name:
        case "staleness":
            return staleness(policy, current)
        case "excluded_reason":
            return shown_reason(trajectory.status, trajectory.readiness, trajectory.excluded_reason)
        case "readiness" | "open" | "complete" | "ready" | "excluded" as name:
            return _readiness_value(trajectory.readiness, name)
        case "policy.model" | "policy.run" | "policy.version" as name:
            return _policy_value(policy, name)
        case "reward" if reference.key is not None:
            return trajectory.rewards.get(reference.key)
        case "label":
            return trajectory.labels.get(reference.key or "")
        case "annotation":
            return True if reference.key in trajectory.annotations else None
        case "task" | "metadata" as name:
            return nested(getattr(trajectory, name), reference.path)
        case name:
            return getattr(trajectory, name)


def step_value(step: Step, trajectory: Trajectory, reference: FieldRef, current: Policy | None, held: Prepared) -> Any:
    """The value of a field of a step of `trajectory`; `held`: the step's arrays, which the record may be without."""
    return _stored(_step_value(step, trajectory, reference, current, held), reference)


def _step_value(step: Step, trajectory: Trajectory, reference: FieldRef, current: Policy | None, held: Prepared) -> Any:
    match reference.field.name:
        case "status" | "task" | "group_id" | "user" | "priority":
            return _trajectory_value(trajectory, reference, None)
        case "staleness":
            return staleness(step.policy, current)
        case "readiness" | "open" | "complete" | "ready" | "excluded" as name:
            return _readiness_value(step.readiness, name)
        case "policy.model" | "policy.run" | "policy.version" as name:
            return _policy_value(step.policy, name)
        case "reward" if reference.key is not None:
            return step.rewards.get(reference.key)
        case "label":
            return step.labels.get(reference.key or "")
        case "annotation":
            return True if reference.key in step.annotations else None
        case "tokens":
            return None if held.response is None else True
        case "logprobs":
            return None if held.logprobs is None else True
        case "messages":
            return None if held.step.prompt_messages is None or held.step.response_message is None else True
        case "metadata":
            return nested(step.metadata, reference.path)
        case name:
            return getattr(step, name)


def nested(value: Any, path: Sequence[str]) -> Any:
    """The value under the keys, None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _stored(value: Any, reference: FieldRef) -> Any:
    return storable(value) if isinstance(value, str) and reference.field.kind == "json" else value


def _policy_value(policy: Policy | None, name: str) -> Any:
    return getattr(policy, name.removeprefix("policy.")) if policy is not None else None


def _readiness_value(readiness: Readiness, name: str) -> Any:
    match name:
        case "readiness":
            return readiness
        case "complete":
            return readiness in ("complete", "ready")
        case _:
            return readiness == name
