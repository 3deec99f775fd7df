"""The reference trainer: one device, the methods of recipes.py on batches from a pool, on merged trees where that pays.

It proves the data and serves small jobs. It leaves out: several devices, mixed precision, a critic with a trunk of its
own (that of ppo is a head on the model, or stored values).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agentworld.errors import AgentWorldError, ConfigError, InvalidRequestError
from agentworld.pool.protocol import Consumer
from agentworld.records import Batch, BatchSpec
from agentworld.records.step import DEFAULT_RUN
from agentworld.trainers.checkpoint import (
    CheckpointRecord,
    latest_checkpoint,
    load_checkpoint,
    read_record,
    save_checkpoint,
)
from agentworld.trainers.critic import VALUES, add_returns, critic_credit, valued
from agentworld.trainers.heads import new_head
from agentworld.trainers.judged_rows import stepwise_rows, unpaired_rows
from agentworld.trainers.lora import has_lora
from agentworld.trainers.metrics import batch_values
from agentworld.trainers.minibatches import Unit, plan_updates
from agentworld.trainers.objective import Objective
from agentworld.trainers.resuming import as_stored, changes, check_same
from agentworld.trainers.rows import (
    Behaviour,
    Row,
    distillation_rows,
    imitation_rows,
    policy_gradient_rows,
    preference_rows,
)
from agentworld.trainers.settings import TrainSettings

Progress = Callable[[int, int, dict[str, float]], None]
_MEANS = ("loss", "gradient_norm", "clipped", "kl")
_HEAD = "head"
_SUMS = ("sequence_tokens", "computed_tokens", "merged_tokens")


class BatchMetrics(msgspec.Struct, kw_only=True):
    """What one batch did. Losses, norms and shares are means over its updates; `reward` is null without credit.

    `sequence_tokens`: of all rows of its updates. `computed_tokens`: in their forwards, where shared ones are computed
    once if merged, padding included; `merged`: share of these that are of trees. `figures`: more of the method's own,
    means over tokens or pairs.
    """

    batch_id: str
    trajectories: int
    rows: int
    tokens: int
    updates: int
    loss: float
    gradient_norm: float
    clipped: float
    kl: float
    reward: float | None
    seconds: float
    sequence_tokens: int = 0
    computed_tokens: int = 0
    merged: float = 0.0
    figures: dict[str, float] = {}


class Trainer:
    """Trains `model` (a transformers causal language model, with or without adapters) in place.

    `folder`: where checkpoints go; `resume()` loads the newest. `record.applied` holds the ids of the batches that
    the weights contain. `vocabulary`: the digest of the model's, which steps that name theirs must share. `fixed`: what
    else who goes on from a checkpoint must share, by name. `changed`: settings that are others than those of the
    checkpoint that was resumed from, each in words.
    """

    def __init__(
        self,
        model: Any,
        settings: TrainSettings,
        folder: Path,
        *,
        version: int = 0,
        run: str = DEFAULT_RUN,
        vocabulary: str | None = None,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        import torch

        check_dropout(model, settings)

        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.model = model
        self.settings = settings
        self.folder = folder
        self.vocabulary = vocabulary
        self.head = new_head(model) if settings.uses_head else None
        self.optimizer = build_optimizer(model, settings, self.head)
        self.objective = Objective(model, settings, self.head)
        self.changed: list[str] = []
        self.record = CheckpointRecord(
            updates=0,
            version=version,
            run=run,
            method=settings.method,
            settings=as_stored(msgspec.to_builtins(settings)),
            fixed=as_stored(fixed or {}),
        )

    def resume(self) -> bool:
        """Load the newest checkpoint; False where there is none.

        ConfigError where it was trained with other settings than may change on the way (see resuming.py).
        """
        newest = latest_checkpoint(self.folder)
        if newest is None:
            return False
        now, before = self.record, read_record(newest)
        check_same(newest, {"method": before.method}, {"method": now.method})
        check_same(newest, before.fixed, now.fixed)
        self.changed = changes(newest, before.settings, now.settings)
        self.record = load_checkpoint(newest, self.model, self.optimizer, head=self.head)
        self.record.settings, self.record.fixed = now.settings, now.fixed
        set_optimizer(self.optimizer, self.settings)
        return True

    def save(self) -> Path:
        """Write a checkpoint; only after this may its batches be acknowledged."""
        return save_checkpoint(self.folder, self.model, self.optimizer, self.record, head=self.head)

    def units(self, batch: Batch) -> tuple[list[Unit], float | None]:
        """The batch as units of rows that have something to teach, and its mean reward."""
        self._check_vocabulary(batch)
        settings, names = self.settings, self.settings.annotations
        if settings.method == "dpo":
            return list(preference_rows(batch, names)), None
        rewards: Any = ()
        if settings.method == "sft":
            rows = imitation_rows(batch, names)
        elif settings.method == "kto":
            units, rewards = unpaired_rows(batch, settings.threshold, names)
            return list(units), float(rewards.mean()) if len(rewards) else None
        elif settings.method == "prm":
            rows = stepwise_rows(batch, settings.threshold)
        elif settings.method == "distill":
            rows = distillation_rows(batch, names, settings.teacher_model)
        else:
            behaviour: Behaviour = settings.needs_logprobs or "where_recorded"
            credit = settings.credit_spec
            if settings.uses_critic and credit is not None:
                batch, credit, names = valued(batch, self.objective.values_of), critic_credit(credit), (*names, VALUES)
            rows, rewards = policy_gradient_rows(batch, credit, names, behaviour=behaviour)
            if settings.uses_critic:
                add_returns(rows)
            elif not settings.reference_weight and not settings.entropy_weight:
                rows = [row for row in rows if np.any(row.advantages)]
        return [[row] for row in rows], float(rewards.mean()) if len(rewards) else None

    def _check_vocabulary(self, batch: Batch) -> None:
        """Refuse ids that are not this model's: trained on, they would be noise."""
        size = self.model.get_input_embeddings().num_embeddings
        for item in batch.items:
            for member in item.trajectories:
                for step in member.steps if member.trained else ():
                    largest = max([*(step.prompt_ids or [0]), *(step.response_ids or [0])])
                    if largest >= size or _differ(self.vocabulary, step.vocabulary):
                        raise InvalidRequestError(
                            f"step {step.step_id} by {step.model or 'an unnamed model'} has ids of another vocabulary",
                            hint="Train the model that the data was collected with, or narrow the batch with where",
                        )

    def train_batch(self, batch: Batch, progress: Progress | None = None) -> BatchMetrics:
        """Update the weights on one batch and note it as applied. `progress(done, total, figures)` hears each update.

        A batch whose groups are all of equal reward has nothing to teach a group-relative method: no update is made,
        and it counts as applied.
        """
        began = time.monotonic()
        units, reward = self.units(batch)
        settings = self.settings
        generator = np.random.default_rng([settings.seed, self.record.updates])
        plan = plan_updates(
            units, epochs=settings.epochs, rows_per_update=settings.rows_per_update, generator=generator
        ) if units else []  # fmt: skip
        self.model.train()
        figures: list[dict[str, float]] = []
        for number, chosen in enumerate(plan):
            self._set_learning_rate(number / len(plan))
            figures.append(self._update(chosen))
            self.record.updates += 1
            if progress is not None:
                progress(number + 1, len(plan), figures[-1])
        self.model.eval()
        self.record.applied.append(batch.batch_id)
        self.record.version += 1
        rows: list[Row] = [row for unit in units for row in unit]
        sums = {name: sum(each[name] for each in figures) for name in _SUMS}
        names = sorted({name for each in figures for name in each} - {*_MEANS, *_SUMS})
        metrics = BatchMetrics(
            batch_id=batch.batch_id,
            trajectories=sum(len(item.trajectories) for item in batch.items),
            rows=len(rows),
            tokens=sum(row.trained for row in rows),
            updates=len(plan),
            reward=reward,
            seconds=time.monotonic() - began,
            sequence_tokens=int(sums["sequence_tokens"]),
            computed_tokens=int(sums["computed_tokens"]),
            merged=sums["merged_tokens"] / max(sums["computed_tokens"], 1),
            figures={name: _mean([each[name] for each in figures]) for name in names},
            **{name: _mean([each.get(name, 0.0) for each in figures]) for name in _MEANS},
        )
        self.record.metrics = batch_values(metrics)
        return metrics

    def run(
        self,
        consumer: Consumer,
        spec: BatchSpec,
        *,
        batches: int,
        timeout: float | None = None,
        progress: Progress | None = None,
        published: Callable[[Path, CheckpointRecord], None] | None = None,
    ) -> Iterator[BatchMetrics]:
        """Lease, train, checkpoint, acknowledge, publish; `batches` times, or until none came for `timeout` seconds.

        After a crash at any point, call `resume()` and this again: what the newest checkpoint contains is acknowledged,
        the rest comes back, so each batch has its effect once. `published` hears of each checkpoint.
        """
        consumer.resume(self.record.applied)
        if batches <= 0:
            return
        for done, leased in enumerate(consumer.stream(spec, timeout=timeout), start=1):
            try:
                metrics = self.train_batch(leased.batch, _extending(leased, spec, progress))
                checkpoint = self.save()
            except AgentWorldError:
                leased.release()
                raise
            leased.ack()
            if published is not None:
                published(checkpoint, self.record)
            yield metrics
            if done >= batches:
                return

    def _update(self, units: Sequence[Unit]) -> dict[str, float]:
        import torch

        self.optimizer.zero_grad(set_to_none=True)
        with torch.random.fork_rng():
            # What drops out follows from the update alone, so that a job that goes on draws as one that never stopped.
            torch.manual_seed(self.settings.seed + (self.record.updates << 20))
            found = self.objective.gradient(units)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.gradient_norm)
        if self.head is not None:  # By itself: how large rewards are is not to make the policy's part small.
            norm = norm.hypot(torch.nn.utils.clip_grad_norm_(self.head.parameters(), self.settings.gradient_norm))
        if not math.isfinite(float(norm)):
            raise AgentWorldError(
                "the gradient is not finite; the weights are as before this update",
                hint="Lower learning_rate, or look for broken log-probabilities in the batch",
            )
        self.optimizer.step()
        return {
            **found.means,
            "loss": found.loss,
            "gradient_norm": float(norm),
            "sequence_tokens": found.sequence_tokens,
            "computed_tokens": found.computed_tokens,
            "merged_tokens": found.merged,
        }

    def _set_learning_rate(self, part: float) -> None:
        settings = self.settings
        factor = min(1.0, (self.record.updates + 1) / settings.warmup) if settings.warmup else 1.0
        if settings.schedule == "cosine":
            factor *= 0.05 + 0.95 * 0.5 * (1.0 + math.cos(math.pi * part))
        for group in self.optimizer.param_groups:
            of_head = group.get("part") == _HEAD
            group["lr"] = (settings.head_learning_rate if of_head else settings.learning_rate) * factor


def build_optimizer(model: Any, settings: TrainSettings, head: Any = None) -> Any:
    """AdamW on what is trained; vectors (norms, biases) are not decayed, nor a head, which has a rate of its own."""
    import torch

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in trained if parameter.ndim > 1]
    vectors = [parameter for parameter in trained if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if head is not None:
        groups.append({"params": list(head.parameters()), "weight_decay": 0.0, "part": _HEAD})
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
    )


def set_optimizer(optimizer: Any, settings: TrainSettings) -> None:
    """Take the settings in place of those that a checkpoint's state brought with it."""
    for group in optimizer.param_groups:
        group["betas"] = (settings.beta1, settings.beta2)
        decayed = group.get("part") != _HEAD and any(each.ndim > 1 for each in group["params"])
        group["weight_decay"] = settings.weight_decay if decayed else 0.0


def check_dropout(model: Any, settings: TrainSettings) -> None:
    """ConfigError where adapters drop out, and sequences may be merged: what is computed once would be dropped once."""
    dropout = model.peft_config["default"].lora_dropout if has_lora(model) else 0.0
    if dropout > 0 and settings.merging != "off":
        raise ConfigError(
            f"a dropout of {dropout} draws anew for each sequence, and merging computes a shared token once",
            path="lora.dropout",
            hint='Use dropout = 0, or merging = "off"',
        )


def _differ(mine: str | None, theirs: str | None) -> bool:
    """Whether both are digests and not the same; `model:NAME` stands where a gateway knew no tokenizer."""
    return mine is not None and theirs is not None and not theirs.startswith("model:") and mine != theirs


def _extending(leased: Any, spec: BatchSpec, progress: Progress | None) -> Progress:
    """Pass progress on, and move the lease's deadline while training goes on."""

    def hear(done: int, total: int, figures: dict[str, float]) -> None:
        if leased.deadline - time.time() < spec.lease_seconds / 2:
            leased.extend(spec.lease_seconds)
        if progress is not None:
            progress(done, total, figures)

    return hear


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
