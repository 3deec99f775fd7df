"""The demo's recipe: how much of what, with which settings. The sizes fit two cores; see docs/decisions/."""

from __future__ import annotations

from agentworld.agents.definition import CommandAgent, LoopAgent
from agentworld.demo.state import DemoPlan
from agentworld.records import Sampling
from agentworld.trainers.settings import TrainSettings

TASK_SETS = ("arithmetic", "conversion")
POLICY = "pocket"
TEACHER = "teacher"
RUN = "demo"

# Rollouts and evaluations both sample at temperature 1 without truncation: success is that of the policy as it is, and
# log-probabilities can be recomputed from the logits.
SAMPLING = Sampling(temperature=1.0, max_tokens=64)
# Seeds of the task draws; the splits share no task whatever they are.
TRAIN_SEED, IMPROVE_SEED, EVALUATION_SEED = 1, 2, 3

IN_PROCESS = LoopAgent(name="loop", max_turns=5, timeout=120.0, concurrency=64)
BLACK_BOX = CommandAgent(
    name="openai",
    command=("{python}", "-m", "agentworld.agents.openai_agent", "--lines"),
    lines=True,
    max_turns=5,
    timeout=120.0,
    concurrency=32,
)


def full_plan(seed: int = 0) -> DemoPlan:
    """Under 8 minutes on 2 cores."""
    return DemoPlan(
        seed=seed,
        teacher_tasks=1200,
        epochs=5,
        evaluation_tasks=200,
        iterations=8,
        groups=20,
        black_box_groups=4,
        rollouts=8,
    )


def quick_plan(seed: int = 0) -> DemoPlan:
    """Under 2 minutes on 2 cores: enough to see every part work and the reward rise."""
    return DemoPlan(
        seed=seed,
        teacher_tasks=500,
        epochs=5,
        evaluation_tasks=48,
        iterations=3,
        groups=10,
        black_box_groups=2,
        rollouts=8,
    )


def fine_tuning(plan: DemoPlan) -> TrainSettings:
    """From random weights to the teacher's habits."""
    return TrainSettings(
        method="sft",
        learning_rate=2e-3,
        beta2=0.95,
        epochs=plan.epochs,
        rows_per_update=16,
        micro_tokens=2048,
        schedule="cosine",
        warmup=40,
        seed=plan.seed,
    )


def improvement(plan: DemoPlan) -> TrainSettings:
    """From the teacher's habits to what pays."""
    return TrainSettings(
        method="grpo",
        learning_rate=1.5e-4,
        weight_decay=0.0,
        rows_per_update=48,
        micro_tokens=4096,
        aggregation="token_mean",
        clip_low=0.2,
        clip_high=0.28,
        seed=plan.seed,
    )
