"""A training job as a TOML file says it: where the data is, what is trained, how, and who hears of new weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agentworld.config import blamed, convert, read_toml
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.pool.lease_rules import SPACE
from agentworld.pool.protocol import Consumer
from agentworld.pool.results import Drain, SpecReport
from agentworld.records import METHODS, BatchSpec, Metrics, Policy
from agentworld.trainers.checkpoint import CheckpointRecord, latest_checkpoint
from agentworld.trainers.evaluating import EvaluationSettings, Evaluator
from agentworld.trainers.lora import LoraSettings, add_lora, has_lora, save_adapter, save_merged
from agentworld.trainers.metrics import MetricsLog
from agentworld.trainers.publish import Publisher, PublishTo, check_publish
from agentworld.trainers.reference import BatchMetrics, Progress, Trainer
from agentworld.trainers.scorers import TeacherSettings, open_scorer
from agentworld.trainers.scoring import ScoredConsumer, ScoredSource, Scoring
from agentworld.trainers.settings import TrainSettings


class TrainJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`pool` or `url`: where batches come from. `model`: pocket, smollm2 or a folder; `weights` replaces its weights.

    `out`: folder of the checkpoints; a job that finds some there goes on from the newest. `batches`: how many in all.
    `timeout`: seconds without a batch after which the job ends. `batch`: the BatchSpec, with the method of `settings`
    and what that needs of each step. `lora`: train adapters in place of the whole model. `teacher`: the engine that
    scores, for distill, what comes. `tensorboard`: write metrics for it too, into a folder of `out`.
    """

    model: str
    batch: dict[str, Any]
    pool: str | None = None
    url: str | None = None
    weights: str | None = None
    out: str = "runs/train"
    consumer: str = "policy"
    run: str = "default"
    batches: int = 1
    timeout: float = 60.0
    device: str | None = None
    settings: TrainSettings = TrainSettings()
    lora: LoraSettings | None = None
    publish: PublishTo | None = None
    evaluation: EvaluationSettings | None = None
    teacher: TeacherSettings | None = None
    tensorboard: bool = False

    @property
    def fixed(self) -> dict[str, Any]:
        """What a job that goes on from a checkpoint must share with the one that wrote it, beside its settings.

        Another consumer would be handed what the weights contain already; another model or other adapters are not what
        the checkpoint holds; other `weights` would be another reference.
        """
        return {
            "model": self.model,
            "weights": self.weights,
            "consumer": self.consumer,
            "run": self.run,
            "lora": None if self.lora is None else msgspec.to_builtins(self.lora),
        }

    @property
    def spec(self) -> BatchSpec:
        """What is leased: with the method of the settings, and what its loss needs of each step."""
        given = convert({**self.batch, "method": self.settings.method}, BatchSpec, "batch")
        spaces = METHODS[self.settings.method].spaces
        if any(need.startswith(SPACE) for need in given.require):
            spaces = ()
        named = (*self.settings.requires, *given.require, *(SPACE + space for space in spaces))
        require = tuple(dict.fromkeys(named))
        return msgspec.structs.replace(given, require=require).resolved()


class Source(ScoredSource, Protocol):
    """The part of a pool, embedded or over HTTP, that a job needs."""

    def consumer(self, name: str) -> Consumer:
        """A named reader."""

    def check_spec(self, consumer: str, spec: BatchSpec | None = None) -> SpecReport:
        """See Pool.check_spec."""

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool.set_policy."""

    def set_paused(self, paused: bool) -> None:
        """See Pool.set_paused."""

    def drain(self, timeout: float = 0.0) -> Drain:
        """See Pool.drain."""

    def add_metrics(self, metrics: Sequence[Metrics]) -> int:
        """See Pool.add_metrics."""


def read_job(path: Path) -> TrainJob:
    """The job in a TOML file; ConfigError says what is wrong and where."""
    data = read_toml(path)
    with blamed(str(path)):
        job = convert(data, TrainJob, str(path))
        _check(job)
        try:
            job.spec  # noqa: B018 - a spec that makes no sense is told before a model is loaded
        except InvalidRequestError as error:
            raise ConfigError(error.message, path=f"batch.{error.path}", hint=error.hint) from None
    return job


def _check(job: TrainJob) -> None:
    """ConfigError for what does not go together, or has no effect."""
    if (job.pool is None) == (job.url is None):
        raise ConfigError("give one of pool and url", path="pool", hint='For example pool = "sqlite:///agentworld.db"')
    unknown = sorted(set(job.batch) - set(BatchSpec.__struct_fields__))
    if unknown:
        raise ConfigError(f"batch has no field {unknown[0]!r}", path=f"batch.{unknown[0]}")
    method = job.settings.method
    if job.batch.get("method", method) != method:
        raise ConfigError(
            f"batch is for {job.batch['method']}, and settings for {method}",
            path="batch.method",
            hint="Leave it out: settings.method decides",
        )
    if job.batches <= 0:
        raise ConfigError(f"batches must be over 0, not {job.batches}", path="batches")
    if not job.timeout >= 0:
        raise ConfigError(f"timeout must be 0 or more, not {job.timeout}", path="timeout")
    if job.publish is not None:
        check_publish(job.publish, job.lora is not None)
    for name in ("publish", "evaluation"):
        if method == "prm" and getattr(job, name) is not None:
            raise ConfigError(
                f"{name} does not go with prm", path=name, hint="It trains a judge of steps, not what speaks"
            )
    if job.teacher is not None and method != "distill":
        raise ConfigError(f"teacher does not go with {method}", path="teacher")
    if job.teacher is not None and job.settings.uses_top and not job.teacher.top_k:
        raise ConfigError(
            f"{job.settings.divergence} compares the teacher's likeliest ids, and top_k is 0",
            path="teacher.top_k",
            hint="Set it to how many, such as 16",
        )


def open_trainer(job: TrainJob) -> Trainer:
    """The trainer of the job, gone on from its newest checkpoint where there is one.

    What would fail only after the training is looked at first: the folder, and the engine to publish to.
    """
    folder = Path(job.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}", path="out") from None
    if job.publish is not None:
        Publisher(job.publish, lora=job.lora is not None).check()
    from agentworld.engines.builtin.models import open_model

    loaded = open_model(job.model, weights=Path(job.weights) if job.weights else None, device=job.device)
    if job.lora is None:
        loaded.model.requires_grad_(True)
    else:
        add_lora(loaded.model, job.lora, seed=job.settings.seed)
    trainer = Trainer(
        loaded.model,
        job.settings,
        folder,
        run=job.run,
        vocabulary=loaded.tokenizer.digest.hex(),
        fixed=job.fixed,
    )
    trainer.resume()
    return trainer


def run_job(
    job: TrainJob,
    trainer: Trainer,
    source: Source,
    progress: Progress | None = None,
    *,
    evaluator: Evaluator | None = None,
    scored: Callable[[int], None] | None = None,
) -> Iterator[BatchMetrics]:
    """Train the batches that are left of the job, see Trainer.run; tell metrics, and evaluate where that is due.

    What an earlier process did not come to after its newest checkpoint is done first. `scored` hears how many steps the
    teacher has scored.
    """
    publisher = None if job.publish is None else Publisher(job.publish, lora=job.lora is not None)
    consumer: Consumer = source.consumer(job.consumer)
    if job.teacher is not None:
        spec, scorer = job.spec, open_scorer(job.teacher)
        newest = spec.order == "freshest"
        scoring = Scoring(source, scorer, job.teacher, spec.channel, job.settings.teacher, newest=newest, heard=scored)
        consumer = ScoredConsumer(consumer, scoring)
    log = MetricsLog(trainer.folder, job.run, source, tensorboard=job.tensorboard)

    def published(checkpoint: Path, record: CheckpointRecord) -> None:
        if publisher is not None:
            folder = _published_folder(publisher, trainer, checkpoint)
            publisher.publish(folder, Policy(publisher.to.model, record.run, record.version), source)

    def told() -> None:
        record = trainer.record
        if record.metrics:
            log.tell("train", record.version, record.metrics)
        evaluation = job.evaluation
        if (
            evaluation is not None
            and evaluator is not None
            and evaluation.due(record.version, job.batches)
            and ("evaluation", record.version) not in log.told
        ):
            log.tell("evaluation", record.version, evaluator.evaluate(record.version))

    try:
        kept = latest_checkpoint(trainer.folder)
        if kept is not None:
            published(kept, trainer.record)
        elif publisher is not None and publisher.adapter:
            # Nothing answers to the adapter's name before there is one.
            first = trainer.folder / "first-adapter"
            first.mkdir(exist_ok=True)
            save_adapter(trainer.model, first, job.model)
            published(first, trainer.record)
        told()
        for metrics in trainer.run(
            consumer,
            job.spec,
            batches=job.batches - trainer.record.version,
            timeout=job.timeout,
            progress=progress,
            published=published,
        ):
            told()
            yield metrics
    finally:
        log.close()


def _published_folder(publisher: Publisher, trainer: Trainer, checkpoint: Path) -> Path:
    """What engines load of a checkpoint of the trainer's present weights."""
    if publisher.adapter or not has_lora(trainer.model):
        return checkpoint
    return save_merged(trainer.model, trainer.folder / "merged")


def check_batch(job: TrainJob, source: Source) -> SpecReport:
    """Whether the pool can give the job a batch, and what keeps the rest; what its teacher adds is not asked for."""
    spec = job.spec
    made = () if job.teacher is None else (job.settings.teacher, *job.settings.top_names)
    require = tuple(need for need in spec.require if need not in {f"annotation.{name}" for name in made})
    return source.check_spec(job.consumer, msgspec.structs.replace(spec, require=require))
