"""Checks over the rollouts of one group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.settings import CheckContext
from agentworld.records import BatchTrajectory, Trajectory


def correctness(trajectory: Trajectory, name: str) -> float | None:
    """The reward that says correctness, else the primary one, else None."""
    value = trajectory.rewards.get(name)
    return trajectory.reward if value is None else value


@check(
    "zero_advantage",
    scope="group",
    gates=True,
    reads_steps=False,
    values="the value that all have",
    says="All rollouts of the group that are judged are equally correct, so that group-relative advantages are 0.",
    fails="Where no reward is named `correct`, the primary one counts, and shaping in it hides that all are equally "
    "correct. Groups with one judged rollout say nothing; a rollout that is rewarded later changes it.",
)
def zero_advantage(members: Sequence[BatchTrajectory], context: CheckContext) -> Iterator[Found]:
    name = context.settings.correct
    judged = {}
    for member in members:
        value = correctness(member.trajectory, name)
        if value is not None:
            judged[member.trajectory.trajectory_id] = value
    if len(judged) >= 2 and len(set(judged.values())) == 1:
        value = next(iter(judged.values()))
        evidence = {"group": members[0].trajectory.group_id, "judged": len(judged), "members": len(members)}
        for trajectory_id in judged:
            yield Found(value, evidence, trajectory_id=trajectory_id)
