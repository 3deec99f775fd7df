"""The start of a cell: weights that imitate the expert of its task set. Made once for each task set, and
the same for every seed, as a pretrained model would be."""

from __future__ import annotations

import json
from pathlib import Path

from agentworld.agents.definition import LoopAgent
from agentworld.demo.services import Services
from agentworld.demo.state import write_atomically
from agentworld.engines.builtin.pocket import load_pocket
from agentworld.errors import AgentWorldError
from agentworld.records import BatchSpec
from agentworld.trainers.checkpoint import latest_checkpoint
from agentworld.trainers.reference import Trainer
from agentworld.trainers.settings import TrainSettings
from experiments.cells import Plan
from experiments.task_sets import Lesson
from experiments.tree import EXPERT, Tree, exploring, start_expert

EXPERT_SEED, START_SEED = 1, 0


def start_weights(lesson: Lesson, plan: Plan, folder: Path) -> Path:
    """The checkpoint of the start in `folder`, made where it is not there yet."""
    made = latest_checkpoint(folder / "weights")
    if made is None:
        made = _imitate(lesson, plan, folder)
    return made


def _imitate(lesson: Lesson, plan: Plan, folder: Path) -> Path:
    """The expert works on training tasks through a gateway; random weights are trained on what it said."""
    folder.mkdir(parents=True, exist_ok=True)
    count = min(plan.teacher_tasks, lesson.games or plan.teacher_tasks)
    tasks = lesson.task_set.tasks(count, split="train", seed=EXPERT_SEED)
    book = folder / "expert.json"
    write_atomically(book, json.dumps({task.messages[0].text: lesson.expert(task) for task in tasks}).encode())
    agent = LoopAgent(name="loop", max_turns=lesson.turns, timeout=120.0)
    model, _ = load_pocket(seed=START_SEED)
    settings = TrainSettings(
        method="sft",
        learning_rate=2e-3,
        epochs=plan.epochs,
        rows_per_update=16,
        schedule="cosine",
        warmup=20,
        merging="off",
        threads=1,
        seed=START_SEED,
    )
    with Services(folder / "logs") as services:
        tree = Tree(folder, services, start_expert(services, book), EXPERT, "engine")
        tree.rollouts("expert", agent, lesson.task_set, tasks, exploring(lesson.reply_tokens, 0), channel="expert")
        trainer = Trainer(model, settings, folder / "weights")
        spec = BatchSpec(
            method="sft", size=count, min_size=1, where="reward >= 1", channel="expert", lease_seconds=3600.0
        )
        for _ in trainer.run(tree.pool.consumer("start"), spec, batches=1, timeout=10.0):
            pass
    made = latest_checkpoint(folder / "weights")
    if made is None:
        raise AgentWorldError("the expert left nothing to imitate", hint=f"The logs are in {folder / 'logs'}")
    return made
