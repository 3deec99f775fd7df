"""Agents over tasks: every rollout as one trajectory, with concurrency, retries, time-outs and resumption.

A bad rollout is data, not a crash: a failed attempt ends as a failed trajectory, which curation excludes, and the
rollout is tried again as a new one, begun before the failed one is ended, as the group closes once all of its rollouts
have ended. The run ends when every rollout has a trajectory that counts or has used up its attempts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from agentworld.agents.attempt import Stage
from agentworld.agents.definition import Agent, CommandAgent
from agentworld.agents.environment_server import EnvironmentServer
from agentworld.agents.lines import LineProcess
from agentworld.agents.pacing import Pace, check_pace
from agentworld.agents.plan import Rollout, complete_one, known_trajectories, plan_rollouts
from agentworld.agents.ports import FactoryClient, Notify, Started, ignore
from agentworld.agents.progress import RunProgress, Silent
from agentworld.agents.report import RolloutResult, RunReport, build_report
from agentworld.errors import ConfigError
from agentworld.records import Policy, Sampling, Trajectory
from agentworld.tasks.base import Task, TaskSet

FIRST_RETRY_PAUSE = 0.25
LONGEST_RETRY_PAUSE = 8.0


async def run_rollouts(
    client: FactoryClient,
    work: Sequence[tuple[TaskSet, Sequence[Task]]],
    agents: Sequence[Agent],
    *,
    name: str,
    model: str,
    rollouts: int = 1,
    concurrency: int = 64,
    retries: int = 2,
    channel: str = "train",
    sampling: Sampling | None = None,
    metadata: Mapping[str, Any] | None = None,
    resume: bool = True,
    max_staleness: int | None = None,
    batch: int | None = None,
    barrier: bool = False,
    skip_equal: bool = False,
    progress: RunProgress | None = None,
    notify: Notify = ignore,
) -> RunReport:
    """Run every agent on every task `rollouts` times.

    `work`: task sets with the tasks to do of each. `name`: the run; with `resume`, rollouts of the same name that the
    pool holds complete are not done again, and those that an earlier process left open are ended as abandoned once
    their next attempt has begun; without it, choose a new name, as groups that have closed take no more.
    `concurrency`: rollouts at one moment over all agents; each agent may have a lower limit. `retries`: further
    attempts for a failed one. `sampling.seed` gives each rollout a seed of its own. Cancelling stops the agents and
    ends open trajectories as abandoned. `max_staleness`, `batch`, `barrier`, `skip_equal`: rollouts wait where they
    would be too old for the trainer (agentworld.agents.pacing). `notify` hears why agents wait. AgentWorldError where
    the server cannot be reached at the start.
    """
    began = time.monotonic()
    progress = progress or Silent()
    check_different([agent.name for agent in agents], "agents")
    check_different([task_set.name for task_set, _ in work], "task_sets")
    todo = plan_rollouts(name, work, agents, rollouts)
    lag = check_pace(max_staleness, batch, barrier, rollouts)
    results: list[RolloutResult] = []
    policies: list[Policy | None] = []
    if resume:
        todo, results, policies = await leave_out_complete(client, todo)
    else:
        await client.list_trajectories(limit=1)  # A server that is not there is one error, not one for each rollout.
    progress.start(name, len(todo) + len(results), len(results))
    lines = {agent.name: LineProcess(agent) for agent in agents if isinstance(agent, CommandAgent) and agent.lines}
    try:
        async with contextlib.AsyncExitStack() as stack:
            environments = await stack.enter_async_context(EnvironmentServer())
            for process in lines.values():
                stack.push_async_callback(process.close)
            stage = Stage(
                client,
                run=name,
                model=model,
                channel=channel,
                sampling=sampling or Sampling(),
                environments=environments,
                lines=lines,
                metadata=metadata or {},
                notify=notify,
            )
            gate = asyncio.Semaphore(concurrency)
            pace = None
            if lag is not None and batch is not None:
                pace = Pace(client, model, lag, batch, skip_equal=skip_equal, policies=policies, notify=notify)
            sizes = Counter(rollout.group_id for rollout in todo)
            async with asyncio.TaskGroup() as group:
                for agent in agents:
                    queue = deque(rollout for rollout in todo if rollout.agent is agent)
                    for _ in range(min(limit_of(agent, concurrency), len(queue))):
                        group.create_task(work_off(stage, queue, gate, retries, results, progress, pace, sizes))
    finally:
        progress.stop()
    return build_report(name, time.monotonic() - began, results)


def check_different(names: Sequence[str], what: str) -> None:
    """ConfigError where two of `names` are the same: their groups could not be told apart."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two of the {what} are called {name!r}", path=f"$.{what}", hint="Set name in one")


def limit_of(agent: Agent, concurrency: int) -> int:
    """Most rollouts of `agent` at one moment."""
    own = agent.limit if isinstance(agent, CommandAgent) else agent.concurrency
    return min(own or concurrency, concurrency)


async def work_off(
    stage: Stage,
    queue: deque[Rollout],
    gate: asyncio.Semaphore,
    retries: int,
    results: list[RolloutResult],
    progress: RunProgress,
    pace: Pace | None,
    sizes: Mapping[str, int],
) -> None:
    """Take rollouts from the queue until it is empty; `sizes`: how many of each group are to be done."""
    while queue:
        rollout = queue.popleft()
        if pace is not None:
            await pace.begin(rollout.group_id, sizes[rollout.group_id])
        pause = FIRST_RETRY_PAUSE
        started: Started | None = None
        for attempt in range(retries + 1):
            this = replace(rollout, attempt=rollout.attempt + attempt)
            try:
                async with gate:
                    playing, started = started, None
                    result, started = await stage.attempt(this, playing, again=attempt < retries)
                if result.status != "failed" or attempt == retries:
                    break
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                await stage.end(started, "abandoned")  # The attempt that would have come next.
                raise
            pause = min(2 * pause, LONGEST_RETRY_PAUSE)
        result = msgspec.structs.replace(result, attempts=attempt + 1)
        if pace is not None:
            pace.end(rollout.group_id, None if result.status == "failed" else result.reward)
        results.append(result)
        progress.done(result)


async def leave_out_complete(
    client: FactoryClient, planned: Sequence[Rollout]
) -> tuple[list[Rollout], list[RolloutResult], list[Policy | None]]:
    """What is left to do, with what an earlier process left open of it, and the results and policies of what the pool
    holds complete.
    """
    known = await known_trajectories(client, list(dict.fromkeys(rollout.group_id for rollout in planned)))
    todo: list[Rollout] = []
    results: list[RolloutResult] = []
    policies: list[Policy | None] = []
    for rollout in planned:
        trajectories = known.get((rollout.group_id, rollout.index), [])
        counted = complete_one(trajectories)
        if counted is not None:
            results.append(earlier_result(rollout, counted))
            policies.append(counted.policy)
            continue
        leftovers = tuple(trajectory.trajectory_id for trajectory in trajectories if trajectory.status == "open")
        attempt = max((trajectory.attempt + 1 for trajectory in trajectories), default=0)
        todo.append(replace(rollout, attempt=attempt, leftovers=leftovers))
    return todo, results, policies


def earlier_result(rollout: Rollout, trajectory: Trajectory) -> RolloutResult:
    """The result of a rollout that an earlier process of this run completed."""
    return RolloutResult(
        task_set=rollout.task_set.name,
        task_id=rollout.task.task_id,
        agent=rollout.agent.name,
        group_id=rollout.group_id,
        rollout_index=rollout.index,
        attempt=trajectory.attempt,
        trajectory_id=trajectory.trajectory_id,
        status="truncated" if trajectory.status == "truncated" else "finished",
        reward=trajectory.reward,
        steps=trajectory.step_count,
        prompt_tokens=trajectory.prompt_tokens,
        response_tokens=trajectory.response_tokens,
        seconds=(trajectory.completed_at or trajectory.created_at) - trajectory.created_at,
        attempts=0,
        skipped=True,
    )
