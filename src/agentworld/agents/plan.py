"""Which rollouts a run consists of, and which of them the pool has already."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentworld.agents.definition import Agent
from agentworld.agents.ports import FactoryClient
from agentworld.records import Trajectory, digest
from agentworld.tasks.base import Task, TaskSet

LONGEST_ID = 128
UNSAFE = re.compile(r"[^A-Za-z0-9._@~-]+")
LOOKUPS = 32


@dataclass(frozen=True, slots=True)
class Rollout:
    """One cell of tasks x rollouts x agents. `attempt`: the number of its next attempt; `leftovers`: trajectories of
    earlier attempts that are still open.
    """

    task_set: TaskSet
    task: Task
    agent: Agent
    group_id: str
    group_size: int
    index: int
    attempt: int = 0
    leftovers: tuple[str, ...] = ()


def group_name(run: str, agent: str, task_set: str, task_id: str) -> str:
    """The id of a group: the same run, agent and task always give the same one, and others another.

    Agents have groups of their own: they prompt differently, so their rewards have different baselines.
    """
    parts = (run, agent, task_set, task_id)
    readable = ":".join(UNSAFE.sub("-", part) for part in parts)
    if ":".join(parts) == readable and len(readable) <= LONGEST_ID:
        return readable
    return f"{readable[: LONGEST_ID - 13].rstrip(':')}~{digest(*(part.encode() for part in parts)).hex()[:12]}"


def plan_rollouts(
    run: str, work: Sequence[tuple[TaskSet, Sequence[Task]]], agents: Sequence[Agent], rollouts: int
) -> list[Rollout]:
    """Every rollout, those of one group next to each other, so that whole groups end early."""
    return [
        Rollout(task_set, task, agent, group_name(run, agent.name, task_set.name, task.task_id), rollouts, index)
        for agent in agents
        for task_set, tasks in work
        for task in tasks
        for index in range(rollouts)
    ]


async def known_trajectories(
    client: FactoryClient, group_ids: Sequence[str]
) -> dict[tuple[str, int], list[Trajectory]]:
    """What the pool holds of these groups, by group and rollout index."""
    found: dict[tuple[str, int], list[Trajectory]] = {}
    gate = asyncio.Semaphore(LOOKUPS)

    async def look(group_id: str) -> None:
        cursor: str | None = None
        while True:
            async with gate:
                page = await client.list_trajectories(group_id=group_id, cursor=cursor, limit=100)
            for trajectory in page.items:
                if trajectory.rollout_index is not None:
                    found.setdefault((group_id, trajectory.rollout_index), []).append(trajectory)
            cursor = page.next_cursor
            if cursor is None:
                return

    lookups = [asyncio.create_task(look(group_id)) for group_id in group_ids]
    try:
        await asyncio.gather(*lookups)
    except BaseException:
        # The others would go on asking, over connections that the caller is about to close.
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)
        raise
    return found


def complete_one(trajectories: Sequence[Trajectory]) -> Trajectory | None:
    """The attempt that counts, if there is one: ended with a reward, by answering or by running out of something."""
    usable = [t for t in trajectories if t.status in ("finished", "truncated") and t.reward is not None]
    return usable[-1] if usable else None
