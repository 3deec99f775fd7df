"""Field values of records, for evaluating `where` outside SQL."""

from __future__ import annotations

from typing import Any

from agentworld.pool.rules import staleness
from agentworld.query import FieldRef
from agentworld.records import Policy, Readiness, Step, Trajectory


def trajectory_value(trajectory: Trajectory, reference: FieldRef, current: Policy | None) -> Any:
    """The value of a field of a trajectory; `current`: the policy of its model that speaks now."""
    policy = trajectory.policy
    match reference.field.name:
        case "staleness":
            return staleness(policy, current)
        case "readiness" | "open" | "complete" | "ready" | "excluded" as name:
            return _readiness_value(trajectory.readiness, name)
        case "policy.model":
            return policy.model if policy else None
        case "policy.run":
            return policy.run if policy else None
        case "policy.version" | "version":
            return policy.version if policy else None
        case "reward" if reference.key is not None:
            return trajectory.rewards.get(reference.key)
        case "task" | "metadata" as name:
            return nested(getattr(trajectory, name), reference.key or "")
        case name:
            return getattr(trajectory, name)


def step_value(step: Step, trajectory: Trajectory, reference: FieldRef, current: Policy | None) -> Any:
    """The value of a field of a step of `trajectory`."""
    policy = step.policy
    match reference.field.name:
        case "status" | "task" | "group_id":
            return trajectory_value(trajectory, reference, None)
        case "staleness":
            return staleness(policy, current)
        case "readiness" | "open" | "complete" | "ready" | "excluded" as name:
            return _readiness_value(step.readiness, name)
        case "policy.model":
            return policy.model if policy else None
        case "policy.run":
            return policy.run if policy else None
        case "policy.version" | "version":
            return policy.version if policy else None
        case "reward" if reference.key is not None:
            return step.rewards.get(reference.key)
        case "label":
            return step.labels.get(reference.key or "")
        case "metadata":
            return nested(step.metadata, reference.key or "")
        case name:
            return getattr(step, name)


def nested(value: Any, key: str) -> Any:
    """The value at a dotted key, None where there is none."""
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _readiness_value(readiness: Readiness, name: str) -> Any:
    match name:
        case "readiness":
            return readiness
        case "complete":
            return readiness in ("complete", "ready")
        case _:
            return readiness == name
