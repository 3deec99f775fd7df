"""Evaluations of `agentworld train`: agents on held-out tasks through a gateway, each a run that is gone on with."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentworld.agents.run_config import RunConfig, agents_of, work_of
from agentworld.config import blamed, convert
from agentworld.errors import AgentWorldError, ConfigError
from agentworld.records import Sampling, check_id

if TYPE_CHECKING:
    from agentworld.agents.report import RunReport
    from agentworld.trainers.job import TrainJob

OF_TASKS = ("reward", "standard_error", "tasks", "rollouts", "failed", "truncated")


class GatewayEvaluator:
    """Runs the evaluations of a job, whose file is at `path`. ConfigError where agents or tasks cannot be had."""

    def __init__(self, job: TrainJob, path: Path) -> None:
        evaluation = job.evaluation
        if evaluation is None:
            raise ConfigError(f"{path} has no evaluation", path="evaluation")
        model = evaluation.model or (job.publish.model if job.publish is not None else None)
        url = evaluation.url or job.url
        for name, value in (("model", model), ("url", url)):
            if value is None:
                raise ConfigError(
                    f"{path}: the evaluation needs the {name} of the gateway", path=f"evaluation.{name}", hint="Set it"
                )
        self.url, self.model, self.settings, self.run = url, model or "", evaluation, job.run
        # Checkers, environments and task sets of the user are modules beside the configuration.
        sys.path.insert(0, str(path.parent.resolve()))
        tables = [{"split": "heldout", **table} if "path" not in table else table for table in evaluation.task_sets]
        with blamed(str(path)):
            fields = {"model": self.model, "task_sets": tables, "agents": evaluation.agents or [{"kind": "loop"}]}
            config = convert(fields, RunConfig, "evaluation")
            self.agents = agents_of(config, path.parent)
            self.work = work_of(config, path.parent)
        check_id(self.name(0), "run")

    def name(self, version: int) -> str:
        """The run's name: the same one again goes on with it."""
        return f"{self.run}-evaluation-{version}"

    def evaluate(self, version: int) -> dict[str, float | None]:
        """See agentworld.trainers.evaluating.Evaluator."""
        report = asyncio.run(self._run(version))
        if report.failed == len(report.rollouts):
            raise AgentWorldError(
                f"every rollout of the evaluation of version {version} failed: {report.common_error()}",
                hint="The same command evaluates it again",
            )
        values = evaluation_values(report)
        typer.echo(evaluation_line(version, values))
        return values

    async def _run(self, version: int) -> RunReport:
        from agentworld.agents.progress import Printed
        from agentworld.agents.runner import run_rollouts
        from agentworld.client.aio import AsyncFactory

        settings = self.settings
        sampling = Sampling(temperature=settings.temperature, max_tokens=settings.max_tokens, seed=0)
        async with AsyncFactory(self.url or "") as client:
            return await run_rollouts(
                client,
                self.work,
                self.agents,
                name=self.name(version),
                model=self.model,
                rollouts=settings.rollouts,
                concurrency=settings.concurrency,
                channel=settings.channel,
                sampling=sampling,
                metadata={"evaluation": version},
                progress=Printed(sys.stderr),
            )


def evaluation_values(report: RunReport) -> dict[str, float | None]:
    """The numbers over all rollouts, and over those of each task set, `SET/reward`, where there are several."""
    found: dict[str, float | None] = {}
    sets = list(dict.fromkeys(result.task_set for result in report.rollouts))
    for task_set in (None, *(sets if len(sets) > 1 else ())):
        summary = report.summary(task_set=task_set)
        own: dict[str, Any] = {
            "reward": summary.mean_reward,
            "standard_error": summary.standard_error,
            **{name: getattr(summary, name) for name in OF_TASKS[2:]},
        }
        found |= {name if task_set is None else f"{task_set}/{name}": value for name, value in own.items()}
    return {**found, "seconds": report.seconds}


def evaluation_line(version: int, values: dict[str, float | None]) -> str:
    """What came of it, in a line."""
    reward, error = values["reward"], values["standard_error"]
    said = f"evaluation of version {version}: " + ("no reward" if reward is None else f"reward {reward:.3f}")
    around = f" ± {error:.3f}" if error is not None else ""
    failed = f", {values['failed']:.0f} rollouts failed" if values["failed"] else ""
    return f"{said}{around} over {values['tasks']:.0f} tasks{failed}"
