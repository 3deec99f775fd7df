"""The demo's stages, one after the other; each can be done again after a stop and does only what is left of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentworld.agents.report import RunReport
from agentworld.demo.curves import Curves, ToldUpdates
from agentworld.demo.factory import DemoFactory, Work
from agentworld.demo.recipe import (
    BLACK_BOX,
    EVALUATION_SEED,
    IMPROVE_SEED,
    IN_PROCESS,
    POLICY,
    RUN,
    TASK_SETS,
    TEACHER,
    TRAIN_SEED,
    fine_tuning,
    improvement,
)
from agentworld.demo.state import DemoFolder, DemoPlan, DemoState
from agentworld.errors import AgentWorldError
from agentworld.records import BatchSpec, Policy
from agentworld.records.batch import MOST_UNITS
from agentworld.tasks import Task, ready_task_set
from agentworld.trainers.checkpoint import latest_checkpoint, read_record
from agentworld.trainers.metrics import batch_values
from agentworld.trainers.progress import Updates
from agentworld.trainers.reference import Trainer


class Stages:
    """What is to be done, on `factory`; figures go into `state`, which is saved as each piece is done."""

    def __init__(self, folder: DemoFolder, state: DemoState, factory: DemoFactory) -> None:
        self.folder = folder
        self.state = state
        self.plan = state.plan
        self.factory = factory

    def run(self, announce: Callable[[str], None]) -> None:
        """Every stage that is not done yet."""
        stages: dict[str, Callable[[], Any]] = {
            "collect": self.collect,
            "fine-tune": self.fine_tune,
            "evaluate fine-tuned": lambda: self.evaluate("evaluate fine-tuned"),
            "improve": self.improve,
            "evaluate improved": lambda: self.evaluate("evaluate improved"),
        }
        for number, (name, stage) in enumerate(stages.items(), start=1):
            if name in self.state.seconds:
                continue
            announce(f"{number}/{len(stages)} {name}")
            began = time.monotonic()
            self.state.figures[name] = stage()
            self.state.seconds[name] = time.monotonic() - began
            self.folder.save(self.state)

    def collect(self) -> dict[str, Any]:
        """The teacher works on training tasks, through the gateway."""
        work = self._work(self.plan.teacher_tasks, "train", TRAIN_SEED)
        report = self.factory.rollouts("collect", [(IN_PROCESS, work)], model=TEACHER, channel="expert")
        return _success(report)

    def fine_tune(self) -> dict[str, Any]:
        """Imitate the teacher's rewarded trajectories, from random weights."""
        from agentworld.engines.builtin.pocket import load_pocket

        model, _ = load_pocket(seed=self.plan.seed)
        trainer = Trainer(model, fine_tuning(self.plan), self.folder.weights / "fine-tune", run=RUN)
        trainer.resume()
        spec, batches = imitation(self.plan)
        consumer = self.factory.pool.consumer("fine-tune")
        todo = batches - len(trainer.record.applied)
        with Updates("fine-tune") as shown:
            progress = ToldUpdates(shown, Curves(self.factory.pool, "fine-tune"), trainer.record.updates)
            metrics = list(trainer.run(consumer, spec, batches=todo, timeout=10.0, progress=progress))
        if not trainer.record.applied:
            raise AgentWorldError(
                "no rewarded trajectory of the teacher is left to train on", hint="Start with --fresh"
            )
        self._publish(trainer)
        return {"updates": trainer.record.updates, "tokens": sum(each.tokens for each in metrics)}

    def evaluate(self, name: str) -> dict[str, Any]:
        """The policy on held-out tasks, by the agent in process."""
        work = self._work(self.plan.evaluation_tasks, "heldout", EVALUATION_SEED)
        report = self.factory.rollouts(
            name, [(IN_PROCESS, work)], model=POLICY, channel="val", seed=self.plan.seed + 1000
        )
        step = self._fine_tuned()[1] + (self.plan.iterations if "improve" in self.state.seconds else 0)
        Curves(self.factory.pool, "improve").tell(step, {"reward": report.summary().mean_reward}, "evaluation")
        return _success(report)

    def improve(self) -> dict[str, Any]:
        """GRPO: rollouts of both agents, one update of the policy, new weights into the engine; again and again."""
        from agentworld.engines.builtin.pocket import load_pocket

        start, version = self._fine_tuned()
        model, _ = load_pocket(start, seed=self.plan.seed)
        trainer = Trainer(model, improvement(self.plan), self.folder.weights / "improve", version=version, run=RUN)
        if trainer.resume():
            self._publish(trainer)
        consumer = self.factory.pool.consumer("improve")
        consumer.resume(trainer.record.applied)
        plan = self.plan
        per_set = plan.groups + plan.black_box_groups
        tasks = {name: self._tasks(name, per_set * plan.iterations, "train", IMPROVE_SEED) for name in TASK_SETS}
        for iteration in range(trainer.record.version - version, plan.iterations):
            chosen = {name: own[iteration * per_set : (iteration + 1) * per_set] for name, own in tasks.items()}
            report = self._improvement_rollouts(iteration, chosen)
            entry = {"iteration": iteration + 1, "version": trainer.record.version, **_success(report)}
            self.state.curve = [*self.state.curve[:iteration], entry]
            self.folder.save(self.state)
            spec = BatchSpec(
                method="grpo", groups=per_set * len(TASK_SETS), rollouts=plan.rollouts, min_size=1, channel="train"
            )
            with Updates(f"update {iteration + 1}/{plan.iterations}") as progress:
                metrics = list(trainer.run(consumer, spec, batches=1, timeout=10.0, progress=progress))
            if not metrics:
                raise AgentWorldError(
                    "the rollouts of this iteration are not all there to train on", hint="Start afresh with --fresh"
                )
            entry.update(kl=metrics[0].kl, clipped=metrics[0].clipped, trained_tokens=metrics[0].tokens)
            Curves(self.factory.pool, "improve").tell(trainer.record.version, batch_values(metrics[0]))
            self._publish(trainer)
            self.folder.save(self.state)
        return {"updates": trainer.record.updates, "version": trainer.record.version}

    def _improvement_rollouts(self, iteration: int, chosen: Mapping[str, Sequence[Task]]) -> RunReport:
        groups = self.plan.groups
        in_process = [(ready_task_set(name), own[:groups]) for name, own in chosen.items()]
        black_box = [(ready_task_set(name), own[groups:]) for name, own in chosen.items()]
        return self.factory.rollouts(
            f"improve {iteration + 1}",
            [(IN_PROCESS, in_process), (BLACK_BOX, black_box)],
            model=POLICY,
            channel="train",
            rollouts=self.plan.rollouts,
            seed=self.plan.seed + 2000 + iteration,
        )

    def _fine_tuned(self) -> tuple[Path, int]:
        """The fine-tuned weights and their version, which is the number of batches that they have seen."""
        checkpoint = self._newest("fine-tune")
        return checkpoint, read_record(checkpoint).version

    def _newest(self, stage: str) -> Path:
        checkpoint = latest_checkpoint(self.folder.weights / stage)
        if checkpoint is None:
            raise AgentWorldError(
                f"there is no checkpoint in {self.folder.weights / stage}", hint="Start afresh with --fresh"
            )
        return checkpoint

    def _publish(self, trainer: Trainer) -> None:
        self.factory.publish(
            self._newest(trainer.folder.name), Policy(POLICY, trainer.record.run, trainer.record.version)
        )

    def _work(self, count: int, split: str, stage_seed: int) -> Work:
        return [(ready_task_set(name), self._tasks(name, count, split, stage_seed)) for name in TASK_SETS]

    def _tasks(self, name: str, count: int, split: str, stage_seed: int) -> list[Task]:
        return ready_task_set(name).tasks(count, split=split, seed=10 * self.plan.seed + stage_seed)


def imitation(plan: DemoPlan) -> tuple[BatchSpec, int]:
    """What fine-tuning leases of all that the teacher did, and in how many batches of about one size."""
    count = plan.teacher_tasks * len(TASK_SETS)
    batches = math.ceil(count / MOST_UNITS)
    spec = BatchSpec(
        method="sft",
        size=math.ceil(count / batches),
        min_size=1,
        where="reward >= 1",
        channel="expert",
        order="random",  # Each batch has tasks of all sets.
        seed=plan.seed,
        lease_seconds=1800.0,
    )
    return spec, batches


def newest_weights(folder: DemoFolder) -> tuple[Path, Policy] | tuple[None, None]:
    """The weights that an earlier demo in this folder came to, and their policy."""
    for stage in ("improve", "fine-tune"):
        checkpoint = latest_checkpoint(folder.weights / stage)
        if checkpoint is not None:
            record = read_record(checkpoint)
            return checkpoint, Policy(POLICY, record.run, record.version)
    return None, None


def _success(report: RunReport) -> dict[str, Any]:
    """Mean reward and standard error of each task set, and what it took."""
    sets = {}
    for name in TASK_SETS:
        summary = report.summary(task_set=name)
        sets[name] = {
            "tasks": summary.tasks,
            "rollouts": summary.rollouts,
            "success": summary.mean_reward,
            "standard_error": summary.standard_error,
        }
    whole = report.summary()
    return {
        "sets": sets,
        "steps": whole.steps,
        "response_tokens": whole.response_tokens,
        "seconds": report.seconds,
    }
