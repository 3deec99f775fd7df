"""The demo's factory: engine, teacher, gateway and pool server as processes, and what the stages do through them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentworld.agents.definition import Agent
from agentworld.agents.progress import Printed
from agentworld.agents.report import RunReport, build_report
from agentworld.agents.runner import run_rollouts
from agentworld.client import Factory
from agentworld.client.aio import AsyncFactory
from agentworld.demo.progress import Joined
from agentworld.demo.recipe import POLICY, SAMPLING, TEACHER
from agentworld.demo.services import Services
from agentworld.demo.state import DemoFolder, write_atomically
from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from agentworld.errors import AgentWorldError
from agentworld.records import Policy
from agentworld.tasks import Task, TaskSet
from agentworld.trainers.publish import publish

Work = Sequence[tuple[TaskSet, Sequence[Task]]]

_GATEWAY = """# The policy's prompts are made of ids; the teacher's ids are those that its engine reports.
[[models]]
name = "{policy}"
upstream = "{engine}"
driver = "builtin"
tokens = "token-in"
tokenizer = "{tokenizer}"

[[models]]
name = "{teacher}"
upstream = "{teacher_engine}"
driver = "vllm"
tokens = "engine"
channel = "expert"
"""


class DemoFactory:
    """What runs while the demo runs. `pool` is the pool over HTTP, through the pool server."""

    def __init__(self, folder: DemoFolder, services: Services, weights: Path | None, policy: Policy | None) -> None:
        engine_options = ["--model", POLICY, "--die-with-parent", "--max-batch", "96"]
        if weights is not None and policy is not None:
            engine_options += ["--weights", str(weights)]
            engine_options += ["--version", str(policy.version), "--run", policy.run]
        engine = services.start("engine", "agentworld", "engine", *engine_options)
        teacher = services.start(
            "teacher",
            "agentworld.testing.scripted_engine",
            *(
                "--script",
                "agentworld.tasks.teacher:reply",
                "--tokenizer",
                "pocket",
                "--model",
                TEACHER,
                "--die-with-parent",
            ),
        )
        self.services = services
        self.engine_url = engine.wait_ready()
        config = folder.path / "gateway.toml"
        text = _GATEWAY.format(
            policy=POLICY,
            engine=self.engine_url,
            tokenizer=POCKET_TOKENIZER_PATH,
            teacher=TEACHER,
            teacher_engine=teacher.wait_ready(),
        )
        write_atomically(config, text.encode())
        common = ("--pool", folder.pool_url, "--port", "0", "--die-with-parent", "--log-level", "warning")
        gateway = services.start("gateway", "agentworld", "serve", "--config", str(config), *common)
        self.gateway_url = gateway.wait_ready()
        pool = services.start("pool server", "agentworld", "serve", "--gateway-url", self.gateway_url, *common)
        self.pool_url = pool.wait_ready()
        self.pool = Factory(self.pool_url, timeout=300.0)
        if policy is not None:
            self.pool.set_policy(policy)

    def rollouts(
        self,
        name: str,
        runs: Sequence[tuple[Agent, Work]],
        *,
        model: str,
        channel: str,
        rollouts: int = 1,
        seed: int = 0,
    ) -> RunReport:
        """Run each agent on its work, all at one moment; goes on where an earlier process stopped."""
        self.services.check()
        report = asyncio.run(self._rollouts(name, runs, model, channel, rollouts, seed))
        if report.failed:
            raise AgentWorldError(
                f"{report.failed} of {len(report.rollouts)} rollouts of {name!r} failed: {report.common_error()}",
                hint="The logs folder says more; running the demo again goes on from here",
            )
        return report

    async def _rollouts(
        self,
        name: str,
        runs: Sequence[tuple[Agent, Work]],
        model: str,
        channel: str,
        rollouts: int,
        seed: int,
    ) -> RunReport:
        progress = Joined(Printed(sys.stderr), name, len(runs))
        sampling = msgspec.structs.replace(SAMPLING, seed=seed)
        slug = name.replace(" ", "-")
        async with AsyncFactory(self.pool_url, timeout=300.0) as client, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    run_rollouts(
                        client,
                        work,
                        [agent],
                        name=f"{slug}-{agent.name}",
                        model=model,
                        rollouts=rollouts,
                        channel=channel,
                        sampling=sampling,
                        progress=progress,
                    )
                )
                for agent, work in runs
            ]
        reports = [task.result() for task in tasks]
        merged = [result for report in reports for result in report.rollouts]
        return build_report(name, max(report.seconds for report in reports), merged)

    def publish(self, weights: Path, policy: Policy) -> None:
        """Load the weights into the engine and publish the policy."""
        publish(self.engine_url, weights, policy, self.pool)
