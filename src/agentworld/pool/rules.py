"""The rules that every store applies: readiness, exclusion, effective rewards, the policy that a trajectory stands for.

A trajectory is `open` until it is completed. Then it is `excluded` where it failed or was abandoned (unless its group
serves it all the same, see group_rules) or has an `excluded_reason`, `ready` with a primary reward, `complete` without
one. A step follows its trajectory, unless it is excluded itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentworld.errors import ConflictError, InvalidRequestError
from agentworld.pool.bounds import check_policy_record, check_reward_record
from agentworld.records import (
    BatchItem,
    NewTrajectory,
    Policy,
    Readiness,
    Reward,
    TerminalStatus,
    Trajectory,
    TrajectoryStatus,
)

PRIMARY = "reward"
DEFAULT_CHANNEL = "train"
# What trajectories are excluded as that are on their way out, or not whole yet.
DELETING, IMPORTING = "deleted", "importing"
CREATION_FIELDS = (
    "group_id",
    "group_size",
    "rollout_index",
    "attempt",
    "task",
    "agent",
    "channel",
    "metadata",
    "user",
    "priority",
)


def trajectory_readiness(
    status: TrajectoryStatus, has_reward: bool, excluded_reason: str | None, admitted: bool = False
) -> Readiness:
    """The readiness of a trajectory; `admitted`: its group serves it although it failed."""
    if excluded_reason is not None or (status in ("failed", "abandoned") and not admitted):
        return "excluded"
    if status == "open":
        return "open"
    return "ready" if has_reward else "complete"


def shown_reason(status: TrajectoryStatus, readiness: Readiness, excluded_reason: str | None) -> str | None:
    """Why a trajectory is excluded, as readers see it: how it ended, where nothing else is the reason.

    That is derived and not stored, as a group may still serve what failed.
    """
    return status if excluded_reason is None and readiness == "excluded" else excluded_reason


def step_readiness(trajectory: Readiness, excluded_reason: str | None) -> Readiness:
    """The readiness of a step of a trajectory with that readiness."""
    return "excluded" if excluded_reason is not None else trajectory


def oldest_policy(known: Policy | None, spoke: Policy | None) -> Policy | None:
    """The policy that a trajectory stands for: that of its first step, or an older version of the same run."""
    if known is None or spoke is None:
        return known or spoke
    same_run = (known.model, known.run) == (spoke.model, spoke.run)
    return spoke if same_run and spoke.version < known.version else known


def staleness(policy: Policy | None, current: Policy | None) -> int | None:
    """How many versions `policy` lies behind; None where there is none or another run speaks now.

    Where no policy of the model was ever published (`current` is None), version 0 of the default run speaks: that is
    also what the gateway stamps on its steps.
    """
    if policy is None:
        return None
    current = current or Policy(policy.model)
    if (policy.model, policy.run) != (current.model, current.run):
        return None
    return current.version - policy.version


def check_policy(policy: Policy, known_version: int | None) -> None:
    """ConflictError where `policy` would go back within its run (`known_version`: the run's latest)."""
    check_policy_record(policy)
    if not policy.model or not policy.run:
        raise InvalidRequestError("a policy has a model and a run", path="policy")
    if known_version is not None and policy.version < known_version:
        raise ConflictError(
            f"run {policy.run!r} of {policy.model!r} is at version {known_version}, {policy.version} is older",
            path="version",
            hint="Publish older weights as a new run",
        )


def check_reward(reward: Reward, path: str) -> None:
    """InvalidRequestError where the reward is on nothing, is no finite number or cannot be stored."""
    if reward.trajectory_id is None and reward.step_id is None:
        raise InvalidRequestError("a reward is on a trajectory or on a step", path=path, hint="Set one of the two ids")
    if not reward.name or not reward.source:
        raise InvalidRequestError("a reward has a name and a source", path=f"{path}.name")
    check_reward_record(reward, path)


def check_same_creation(new: NewTrajectory, there: Trajectory) -> None:
    """ConflictError where `there` was created with other settings."""
    for name in CREATION_FIELDS:
        if getattr(new, name) != getattr(there, name):
            raise ConflictError(
                f"trajectory {there.trajectory_id!r} is there with another {name}",
                path=name,
                hint="Use a new trajectory_id, or send the same settings",
            )


def step_channel(step: str, trajectory: str) -> str:
    """A step that names no channel of its own (`train` is what a step says by default) is in its trajectory's."""
    return trajectory if step == DEFAULT_CHANNEL else step


def other_trajectory(reward: Reward, path: str) -> InvalidRequestError:
    """The error for a reward whose step is not of its trajectory."""
    return InvalidRequestError(
        f"step {reward.step_id!r} is not of trajectory {reward.trajectory_id!r}", path=path, hint="Send the step alone"
    )


def printable(text: object) -> str:
    """Any value as text that can be stored and sent, for naming what was rejected."""
    return str(text).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")[:200]


def check_completion(there: Trajectory, status: TerminalStatus) -> bool:
    """Whether `there` is open and may end; False where it ended so already, ConflictError where it ended otherwise."""
    if status not in ("finished", "failed", "truncated", "abandoned"):
        raise InvalidRequestError(
            f"{status!r} is no way to end a trajectory",
            path="status",
            hint="Known: finished, failed, truncated, abandoned",
        )
    if there.status == "open":
        return True
    if there.status != status:
        raise ConflictError(
            f"trajectory {there.trajectory_id!r} has ended as {there.status}, not {status}",
            path="status",
            hint="A trajectory ends once; start a new one for another attempt",
        )
    return False


def batch_policy(items: Sequence[BatchItem], current: Mapping[str, Policy]) -> Policy | None:
    """The policy that speaks now for the model of the batch's first trajectory that has one."""
    for item in items:
        for entry in item.trajectories:
            if entry.trajectory.policy is not None:
                return current.get(entry.trajectory.policy.model)
    return None


# How reasons begin that curation gives, and takes away again.
DECIDED = ("rule: ", "review: ", "manual: ")


def of_caller(reasons: str) -> str:
    """The reasons that a caller brings, told apart from those that curation gives and takes away."""
    return "; ".join(f"submitted {one}" if one.startswith(DECIDED) else one for one in reasons.split("; "))


def undecided(reasons: str | None) -> str | None:
    """The reasons without those that curation gave."""
    return joined_reasons(one for one in (reasons or "").split("; ") if one and not one.startswith(DECIDED))


def joined_reasons(reasons: Iterable[str]) -> str | None:
    """Several reasons for exclusion as one text, or None."""
    return "; ".join(dict.fromkeys(reasons)) or None
