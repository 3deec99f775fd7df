"""`agentworld train CONFIG`: the reference trainer on batches from a pool."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from agentworld.cli.source import source
from agentworld.cli.spec_report import report_lines
from agentworld.pool.results import SpecReport

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def train(config: Annotated[Path, typer.Argument(help="TOML file: pool, model, batch, settings.")]) -> int:
    """Train a model on batches from a pool, by the method of its settings, on one device.

    Each batch is acknowledged after the checkpoint that contains it; the same command again goes on from the newest.
    """
    from agentworld.trainers.job import check_batch, open_trainer, read_job, run_job
    from agentworld.trainers.progress import Updates, batch_line
    from agentworld.trainers.sole import sole_trainer

    job = read_job(config)
    evaluator = None
    if job.evaluation is not None:
        from agentworld.cli.train_evaluation import GatewayEvaluator

        evaluator = GatewayEvaluator(job, config)
        if job.publish is None:
            typer.echo(
                f"agentworld: there is no [publish], so evaluations are of what serves {evaluator.model} at "
                f"{evaluator.url}, and not of what is trained here, unless somebody else loads the checkpoints there",
                err=True,
            )
    with sole_trainer(Path(job.out)), source(job.pool, job.url) as pool:
        trainer = open_trainer(job)
        if trainer.record.version:
            whole = trainer.record.version >= job.batches
            typer.echo(
                f"all {job.batches} batches are done, in {job.out}"
                if whole
                else f"going on after {trainer.record.version} of {job.batches} batches, from {job.out}"
            )
            for changed in trainer.changed:
                typer.echo(f"changed since the checkpoint: {changed}")
        previous = signal.signal(signal.SIGTERM, _interrupt)
        done, compared = 0, None
        try:
            if trainer.record.version < job.batches:
                pool.consumer(job.consumer).resume(trainer.record.applied)  # What a kill left leased can be had again.
                report = check_batch(job, pool)
                if report.satisfied is False:
                    typer.echo("agentworld: waiting for data", err=True)
                    _tell(report)
            with Updates(job.settings.method) as progress:
                for metrics in run_job(job, trainer, pool, progress, evaluator=evaluator, scored=progress.scored):
                    done += 1
                    if trainer.objective.comparison != compared:
                        compared = trainer.objective.comparison
                        typer.echo(compared)
                    typer.echo(f"batch {trainer.record.version}/{job.batches}: {batch_line(metrics)}")
        except KeyboardInterrupt:
            typer.echo(f"agentworld: stopped after {done} batches; the same command goes on", err=True)
            return 130
        finally:
            signal.signal(signal.SIGTERM, previous)
        if trainer.record.version < job.batches:
            said = f"{trainer.record.version} of {job.batches} batches done, none came for {job.timeout:g} s"
            typer.echo(f"agentworld: {said}", err=True)
            _tell(check_batch(job, pool))
            return 1
    return 0


def _tell(report: SpecReport) -> None:
    for line in report_lines(report):
        typer.echo(f"  {line}", err=True)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
