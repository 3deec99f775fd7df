"""One run of a cell: evaluate the start, then sample and train in turn, then evaluate again.

Where a run was interrupted, the same call goes on: rollouts that are in the pool are not done again, and training goes
on from the checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import platform
import resource
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agentworld.agents.definition import Agent
from agentworld.agents.report import RolloutResult
from agentworld.demo.services import Services
from agentworld.demo.state import write_atomically
from agentworld.engines.builtin.pocket import load_pocket
from agentworld.errors import AgentWorldError, ConflictError
from agentworld.records import Annotation, BatchSpec, Reward, digest
from agentworld.tasks import Task
from agentworld.trainers.settings import TrainSettings
from experiments.agents import agent_for
from experiments.batches import ChangingTrainer, step_logprobs
from experiments.cells import Cell, Plan
from experiments.changing import change_for, retokenised_figures
from experiments.curating import ask_what_they_did, curation_policy
from experiments.progress import ProgressFile
from experiments.results import Evaluation, Result, read_results, same_start, tasks_digest, write_result
from experiments.starts import start_weights
from experiments.task_sets import LESSONS, Lesson, drawn_tasks
from experiments.tree import POLICY, Tree, exploring, greedy

TRAIN_SEED, HELD_OUT_SEED = 2, 3
LEARNING_RATE = 2e-4
Say = Callable[[str], None]


def run_cell(cell: Cell, seed: int, plan: Plan, work: Path, results: Path, engine_url: str, say: Say) -> Path:
    """Run it, or go on with it, and write its result. `work` keeps starts and what is under way; `engine_url`: of an
    engine that nobody else uses meanwhile.
    """
    folder = work / f"{cell.name}-seed{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        _lock(lock.fileno(), folder)
        run = _Run(cell, seed, plan, work, folder, engine_url, say, read_results(results))
        result = run.result()
        path = write_result(results, result)
        shutil.rmtree(folder)
    return path


class _Run:
    def __init__(
        self,
        cell: Cell,
        seed: int,
        plan: Plan,
        work: Path,
        folder: Path,
        engine_url: str,
        say: Say,
        others: Sequence[Result],
    ) -> None:
        self.others = others
        self.cell, self.seed, self.plan, self.work, self.folder, self.say = cell, seed, plan, work, folder, say
        self.engine_url = engine_url
        self.name = f"{cell.name}-seed{seed}"
        self.lesson: Lesson = LESSONS[cell.lesson]()
        self.task_set = self.lesson.task_set
        self.agent: Agent = agent_for(cell.runtime, self.lesson.turns)
        self.held_out = drawn_tasks(cell.lesson, plan.evaluation_tasks, "heldout", HELD_OUT_SEED)
        self._size = f"{plan.teacher_tasks}x{plan.epochs}"
        self.progress = ProgressFile(folder, plan)

    def result(self) -> Result:
        """The whole run."""
        start = start_weights(self.lesson, self.plan, self.work / f"start-{self.cell.lesson}-{self._size}")
        began, used = time.monotonic(), _cpu_seconds()
        weights = self.folder / "versions"
        if not (self.folder / "weights").exists():
            self._keep_version(weights, 0, start)
        model, _ = load_pocket(start, seed=self.seed)
        trainer = ChangingTrainer(model, settings_of(self.cell, self.seed), self.folder / "weights", run=self.name)
        trainer.resume()
        trainer.present = not self.cell.corrected or self.cell.tokens == "retokenised"
        done = trainer.record.version
        trainer.change = change_for(self.cell, self.progress)
        if done:  # What was trained last may have been cut before it was kept.
            self._keep_version(weights, done, _newest(trainer))
        with Services(self.folder / "logs") as services:
            tree = Tree(self.folder, services, self.engine_url, POLICY)
            before = self._evaluated_start(tree, start, done)
            same_start(self.others, self.cell, self.plan, before)
            if self.cell.curated:
                tree.pool.set_curation(curation_policy())
            consumer = tree.pool.consumer("trainer")
            consumer.resume(trainer.record.applied)
            for iteration in range(done, self.plan.iterations):
                speaking = max(0, iteration - self.cell.lag)
                tree.publish(self._version(weights, speaking), self.name, speaking)
                self._iterate(tree, trainer, consumer, iteration)
                self._keep_version(weights, trainer.record.version, _newest(trainer))
                self.progress.spend(time.monotonic() - began, _cpu_seconds() - used)
                began, used = time.monotonic(), _cpu_seconds()
            tree.publish(self._version(weights, self.plan.iterations), self.name, self.plan.iterations)
            after = self._evaluate(tree, "after")
        self.progress.spend(time.monotonic() - began, _cpu_seconds() - used)
        now = self.progress.now
        return Result(
            cell=self.cell,
            seed=self.seed,
            plan=self.plan,
            before=before,
            after=after,
            curve=now.curve,
            figures=retokenised_figures(now.curve),
            cpu_seconds=round(now.cpu_seconds, 1),
            seconds=round(now.seconds, 1),
            software=_software(),
        )

    def _iterate(self, tree: Tree, trainer: ChangingTrainer, consumer: Any, iteration: int) -> None:
        """Sample a batch with the weights that speak, and train on it."""
        report = tree.rollouts(
            f"batch-{iteration}",
            self.agent,
            self.task_set,
            self._training_tasks(iteration),
            exploring(self.lesson.reply_tokens, 1000 * self.seed + iteration),
            rollouts=self.plan.rollouts,
        )
        entry = self.progress.begin_batch(iteration, report.summary().steps, report.rollouts)
        if self.cell.corrupted:
            entry["corrupted"] = self._corrupt(tree, report.rollouts)
        if self.cell.curated:
            entry["kept_back"] = ask_what_they_did(tree, report.rollouts)
        if self.cell.method == "distill":
            self._annotate(tree, report.rollouts)
        # Before training: who is cut after it goes on with the next batch, and this one would be without its reward.
        self.progress.save()
        metrics = list(trainer.run(consumer, self._spec(), batches=1, timeout=1.0))
        if metrics:
            one = metrics[0]
            entry |= {
                name: round(float(getattr(one, name)), 6)
                for name in ("loss", "kl", "clipped", "tokens", "sequence_tokens", "computed_tokens", "seconds")
            }
            entry |= {name: round(value, 6) for name, value in one.figures.items()}
        else:  # Nothing to learn from, such as groups of equal rewards alone: the weights stay, and time goes on.
            trainer.record.version += 1
            trainer.save()
            entry["nothing"] = True
        self.progress.save()
        where = f"batch {iteration + 1}/{self.plan.iterations}"
        self.say(f"{self.cell.name} seed {self.seed}: {where}, reward {entry['reward']:.3f}")

    def _spec(self) -> BatchSpec:
        method, plan = self.cell.method, self.plan
        everything: dict[str, Any] = {"method": method, "min_size": 1, "lease_seconds": 3600.0}
        if method == "sft":
            return BatchSpec(**everything, size=plan.groups * plan.rollouts, where="reward >= 1")
        if method in ("ppo", "reinforce_pp", "distill"):
            return BatchSpec(**everything, size=plan.groups * plan.rollouts)
        if method == "dpo":
            return BatchSpec(**everything, size=plan.groups, pair_margin=0.5)
        skip = "reward" if method == "dapo" else None
        # Curation keeps back single rollouts: a group is trained on where two are left.
        fewest = 2 if self.cell.curated else plan.rollouts
        return BatchSpec(**everything, groups=plan.groups, rollouts=fewest, skip_equal=skip)

    def _training_tasks(self, iteration: int) -> list[Task]:
        """The tasks of a batch: others for each, as far as there are so many; the same for every cell of a seed."""
        groups, wanted = self.plan.groups, self.plan.groups * self.plan.iterations
        most = min(wanted, self.lesson.games or wanted)
        drawn = drawn_tasks(self.cell.lesson, most, "train", 10 * self.seed + TRAIN_SEED)
        return [drawn[(iteration * groups + place) % most] for place in range(groups)]

    def _corrupt(self, tree: Tree, rollouts: Sequence[RolloutResult]) -> int:
        """Turn round the reward of a share of the rollouts, drawn by seed, group and index; how many."""
        wrong = []
        for each in rollouts:
            drawn = int.from_bytes(digest(f"{self.seed}/{each.group_id}/{each.rollout_index}".encode())[:4], "big")
            if drawn < self.cell.corrupted * 2**32:
                # From the same source, so that it replaces the right one; what was noted is right in any case.
                right = self.progress.now.checked[each.trajectory_id or ""]
                wrong.append(Reward(value=1.0 - right, trajectory_id=each.trajectory_id, source="checker"))
        tree.pool.add_rewards(wrong)
        return len(wrong)

    def _annotate(self, tree: Tree, rollouts: Sequence[RolloutResult]) -> None:
        """What a teacher thinks of the student's tokens: the start of an expert that always works with the tool."""
        folder = self.work / f"teacher-{self.cell.lesson}-{self._size}"
        weights = start_weights(type(self.lesson)(direct_share=0.0), self.plan, folder)
        teacher, _ = load_pocket(weights)
        found = []
        for each in rollouts:
            for step in tree.pool.all_steps(trajectory_id=each.trajectory_id, include=("tokens",)):
                values = step_logprobs(teacher, step)
                found.append(Annotation(name="teacher_logprobs", values=values, step_id=step.step_id, source="teacher"))
        tree.pool.add_annotations(found)

    def _evaluated_start(self, tree: Tree, start: Path, done: int) -> Evaluation:
        """The start on the held-out tasks, measured once for each runtime."""
        path = start.parent.parent / f"before-{self.cell.runtime}.json"
        wanted = tasks_digest([task.task_id for task in self.held_out])
        if path.exists():
            known = msgspec.json.decode(path.read_bytes(), type=Evaluation)
            if known.tasks == wanted:
                return known
        if done:
            raise AgentWorldError(f"{path} is gone, and its run has begun", hint=f"Remove {self.folder}")
        tree.publish(start, self.name, 0)
        found = self._evaluate(tree, "before")
        write_atomically(path, msgspec.json.encode(found))
        return found

    def _evaluate(self, tree: Tree, name: str) -> Evaluation:
        report = tree.rollouts(
            name, self.agent, self.task_set, self.held_out, greedy(self.lesson.reply_tokens), channel="val"
        )
        rewards = {each.task_id: each.reward or 0.0 for each in report.rollouts}
        passed = "".join("1" if rewards[task.task_id] >= 1.0 else "0" for task in self.held_out)
        return Evaluation(tasks=tasks_digest([task.task_id for task in self.held_out]), passed=passed)

    def _version(self, weights: Path, version: int) -> Path:
        return weights / f"v{version}"

    def _keep_version(self, weights: Path, version: int, checkpoint: Path) -> None:
        """Keep the weights of a version as long as they may speak."""
        target = self._version(weights, version)
        if not target.exists():
            partial = weights / f".v{version}"
            partial.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkpoint / "model.safetensors", partial)
            partial.rename(target)
        shutil.rmtree(self._version(weights, version - self.cell.lag - 2), ignore_errors=True)


def settings_of(cell: Cell, seed: int) -> TrainSettings:
    """What the trainer of a cell is told; ConfigError where it does not take the cell's own settings."""
    given: dict[str, Any] = {
        "method": cell.method,
        "learning_rate": LEARNING_RATE,
        "weight_decay": 0.0,
        "rows_per_update": 32,
        "merging": cell.merging,
        "threads": 1,
        "seed": seed,
        **cell.settings,
    }
    return msgspec.convert(given, TrainSettings)


def _newest(trainer: ChangingTrainer) -> Path:
    from agentworld.trainers.checkpoint import latest_checkpoint

    newest = latest_checkpoint(trainer.folder)
    if newest is None:
        raise AgentWorldError(f"there is no checkpoint in {trainer.folder}")
    return newest


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConflictError(f"another process is at work in {folder}", hint="Wait for it") from None


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def _software() -> dict[str, str]:
    import torch

    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "cores": str(os.cpu_count()),
    }
