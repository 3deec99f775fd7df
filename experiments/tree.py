"""The tree of processes of one run: engine, gateway with its pool, and what is done through them. All on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentworld.agents.definition import Agent
from agentworld.agents.progress import Silent
from agentworld.agents.report import RunReport
from agentworld.agents.runner import run_rollouts
from agentworld.client import Factory
from agentworld.client.aio import AsyncFactory
from agentworld.demo.services import Services
from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from agentworld.errors import AgentWorldError
from agentworld.records import Policy, Sampling
from agentworld.tasks import Task, TaskSet
from agentworld.trainers.publish import publish
from experiments.expert import VARIABLE

POLICY, EXPERT = "pocket", "expert"
CONCURRENCY = 64
_MODEL = """[[models]]
name = "{name}"
upstream = "{engine}"
driver = "{driver}"
tokens = "{tokens}"
tokenizer = "{tokenizer}"
"""


class Tree:
    """What runs during a run: an engine, and a gateway on a pool in `folder`. `pool` is that pool, over HTTP."""

    def __init__(self, folder: Path, services: Services, engine_url: str, model: str, tokens: str = "token-in") -> None:
        self.folder = folder
        self.engine_url = engine_url
        self._services = services
        self._model = model
        config = folder / "gateway.toml"
        config.write_text(
            _MODEL.format(
                name=model,
                engine=engine_url,
                driver="builtin" if model == POLICY else "vllm",
                tokens=tokens,
                tokenizer=POCKET_TOKENIZER_PATH,
            )
        )
        pool = f"sqlite:///{(folder / 'pool.db').resolve()}"
        gateway = services.start(
            *("gateway", "agentworld", "serve", "--config", str(config), "--pool", pool, "--port", "0"),
            *("--die-with-parent", "--log-level", "warning"),
        )
        self.url = gateway.wait_ready(120.0)
        self.pool = Factory(self.url, timeout=300.0)

    def rollouts(
        self,
        name: str,
        agent: Agent,
        task_set: TaskSet,
        tasks: Sequence[Task],
        sampling: Sampling,
        *,
        rollouts: int = 1,
        channel: str = "train",
    ) -> RunReport:
        """Have the agent work on the tasks; goes on where an earlier process stopped.

        AgentWorldError where a rollout fails.
        """
        self._services.check()
        report = asyncio.run(self._rollouts(name, agent, task_set, tasks, sampling, rollouts, channel))
        if report.failed:
            raise AgentWorldError(
                f"{report.failed} of {len(report.rollouts)} rollouts of {name!r} failed: {report.common_error()}",
                hint=f"The logs in {self.folder / 'logs'} say more; the same command goes on from here",
            )
        return report

    async def _rollouts(
        self,
        name: str,
        agent: Agent,
        task_set: TaskSet,
        tasks: Sequence[Task],
        sampling: Sampling,
        rollouts: int,
        channel: str,
    ) -> RunReport:
        async with AsyncFactory(self.url, timeout=300.0) as client:
            return await run_rollouts(
                client,
                [(task_set, tasks)],
                [agent],
                name=name,
                model=self._model,
                rollouts=rollouts,
                channel=channel,
                sampling=sampling,
                concurrency=CONCURRENCY,
                progress=Silent(),
            )

    def publish(self, weights: Path, run: str, version: int) -> None:
        """Have the engine speak with `weights` as that policy."""
        publish(self.engine_url, weights, Policy(POLICY, run, version), self.pool)


def start_engine(services: Services) -> str:
    """Start the engine, whose weights mean nothing before the first are published; its address."""
    engine = services.start(
        "engine", "agentworld", "engine", "--model", POLICY, "--die-with-parent", "--max-batch", "96"
    )
    return engine.wait_ready(120.0)


def start_expert(services: Services, book: Path) -> str:
    """Start the scripted engine that says what is in `book` (see experiments.expert); its address."""
    engine = services.start(
        *("expert", "agentworld.testing.scripted_engine", "--script", "experiments.expert:reply"),
        *("--tokenizer", "pocket", "--model", EXPERT, "--die-with-parent"),
        environment={VARIABLE: str(book.resolve())},
    )
    return engine.wait_ready(120.0)


def greedy(reply_tokens: int) -> Sampling:
    """How evaluations sample: always the likeliest token."""
    return Sampling(temperature=0.0, max_tokens=reply_tokens)


def exploring(reply_tokens: int, seed: int) -> Sampling:
    """How rollouts for training sample: at temperature 1, untruncated, so that the trainer can recompute the space."""
    return msgspec.structs.replace(greedy(reply_tokens), temperature=1.0, seed=seed)
