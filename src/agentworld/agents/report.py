"""What came of a run: each rollout, and the numbers over them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from agentworld.records import TerminalStatus


class RolloutResult(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout's last attempt. `skipped`: it was complete in the pool before this run started.

    `stopped`: why the agent ended other than by answering. `error`: why the attempt failed. `steps`, tokens: as the
    pool counted them, flat. `seconds`: wall time of the attempt. `attempts`: trajectories that it took in this run.
    """

    task_set: str
    task_id: str
    agent: str
    group_id: str
    rollout_index: int
    attempt: int
    trajectory_id: str | None
    status: TerminalStatus
    reward: float | None = None
    stopped: str | None = None
    error: str | None = None
    steps: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 1
    skipped: bool = False


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers over some rollouts. `standard_error` is of the mean reward, with tasks as the independent units."""

    task_set: str
    agent: str
    tasks: int
    rollouts: int
    failed: int
    truncated: int
    mean_reward: float | None
    standard_error: float | None
    steps: int
    prompt_tokens: int
    response_tokens: int
    seconds: float


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run; `seconds` of wall time."""

    name: str
    seconds: float
    rollouts: list[RolloutResult]
    summaries: list[Summary]

    @property
    def failed(self) -> int:
        """Rollouts without a usable trajectory."""
        return sum(result.status == "failed" for result in self.rollouts)

    def summary(self, task_set: str | None = None, agent: str | None = None) -> Summary:
        """The numbers over the rollouts of one task set, one agent, or all."""
        chosen = [
            result
            for result in self.rollouts
            if (task_set is None or result.task_set == task_set) and (agent is None or result.agent == agent)
        ]
        return summarize(chosen, task_set or "all", agent or "all")

    def common_error(self) -> str | None:
        """The error that most failed rollouts ended with."""
        errors = Counter(result.error for result in self.rollouts if result.error)
        return errors.most_common(1)[0][0] if errors else None


def build_report(name: str, seconds: float, rollouts: Sequence[RolloutResult]) -> RunReport:
    """The report with one summary for each pair of task set and agent."""
    parts: dict[tuple[str, str], list[RolloutResult]] = defaultdict(list)
    for result in rollouts:
        parts[result.task_set, result.agent].append(result)
    summaries = [summarize(part, *key) for key, part in parts.items()]
    return RunReport(name=name, seconds=seconds, rollouts=list(rollouts), summaries=summaries)


def summarize(rollouts: Sequence[RolloutResult], task_set: str, agent: str) -> Summary:
    """Numbers over `rollouts`; failed ones count as failed and in no mean."""
    by_task: dict[tuple[str, str], list[float]] = defaultdict(list)
    for result in rollouts:
        if result.reward is not None and result.status != "failed":
            by_task[result.task_set, result.task_id].append(result.reward)
    means = [math.fsum(values) / len(values) for values in by_task.values()]
    mean = math.fsum(means) / len(means) if means else None
    error = None
    if mean is not None and len(means) > 1:
        variance = math.fsum((value - mean) ** 2 for value in means) / (len(means) - 1)
        error = math.sqrt(variance / len(means))
    return Summary(
        task_set=task_set,
        agent=agent,
        tasks=len({(result.task_set, result.task_id) for result in rollouts}),
        rollouts=len(rollouts),
        failed=sum(result.status == "failed" for result in rollouts),
        truncated=sum(result.status == "truncated" for result in rollouts),
        mean_reward=mean,
        standard_error=error,
        steps=sum(result.steps for result in rollouts),
        prompt_tokens=sum(result.prompt_tokens for result in rollouts),
        response_tokens=sum(result.response_tokens for result in rollouts),
        seconds=math.fsum(result.seconds for result in rollouts),
    )
