"""What `agentworld reward run` and `agentworld reward failures` do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import typer

from agentworld.cli import output
from agentworld.cli.progress import progress_bar
from agentworld.cli.source import DEFAULT_POOL, check_given, open_existing, source
from agentworld.cli.stopping import stopping

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.factory import EmbeddedPool
    from agentworld.pool.protocol import Pool
    from agentworld.rewards.running import Plan, RunReport, RunSettings
    from agentworld.rewards.running.settings import Again


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The command line of a run."""

    config: tuple[Path, ...]
    only: tuple[str, ...]
    where: str | None
    channel: str | None
    shard: str | None
    again: Again | None
    follow: bool
    concurrency: int
    retries: int
    pause_after: int
    limit: int | None
    dry_run: bool


def run_name(config: Sequence[Path]) -> str:
    """The name of a run of these files."""
    return "+".join(each.stem for each in config)


def read_plan(config: Sequence[Path], only: tuple[str, ...] = ()) -> Plan:
    """The evaluators of files; functions of the user's are in modules beside them."""
    from agentworld.rewards.registry import read_evaluators
    from agentworld.rewards.running import plan_of

    for folder in reversed([str(each.parent.resolve()) for each in config]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
        # Evaluators in processes of their own look for the same modules.
        known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if folder not in known:
            os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, known)])
    return plan_of(read_evaluators(*config), only)


def settings_of(asked: Asked) -> RunSettings:
    """The run's settings; CommandLineError for options that cannot be meant together."""
    from agentworld.cli.usage import CommandLineError
    from agentworld.errors import ConfigError
    from agentworld.rewards.running import RunSettings
    from agentworld.rewards.running.settings import read_shard

    if asked.follow and (asked.again is not None or asked.dry_run or asked.limit is not None):
        raise CommandLineError(
            "--follow does not go with --again, --dry-run or --limit", hint="Run those first, and follow afterwards"
        )
    try:
        shard = read_shard(asked.shard)
    except ConfigError as error:
        raise CommandLineError(error.message, path="--shard", hint=error.hint) from None
    return RunSettings(
        name=run_name(asked.config),
        channel=asked.channel,
        where=asked.where,
        shard=shard,
        again=asked.again,
        follow=asked.follow,
        concurrency=asked.concurrency,
        retries=asked.retries,
        pause_after=asked.pause_after,
        limit=asked.limit,
        dry_run=asked.dry_run,
    )


def run_config(asked: Asked, pool: str | None, url: str | None, *, as_json: bool, die_with_parent: bool) -> int:
    """Run, and print what came of it; 1 where an evaluation failed, 130 where it was stopped."""
    from agentworld.rewards.running import run_rewards

    if die_with_parent:
        from agentworld.api.processes import die_with_parent as follow_parent

        follow_parent(os.getppid(), signal.SIGTERM)
    settings = settings_of(asked)
    plan = read_plan(asked.config, asked.only)
    with stopping() as stop, _evaluated(pool, url, stop) as there, progress_bar() as show:
        report = run_rewards(there, plan, settings, progress=show, say=_say, stop=stop)
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        show_report(report, dry_run=settings.dry_run)
    if stop.is_set():
        typer.echo("agentworld: stopped; the same command goes on", err=True)
        return 0 if settings.follow else 130
    if report.failed:
        name = next(name for name, each in report.evaluators.items() if each.failed or each.skipped)
        failed = output.count(report.failed, "evaluation")
        typer.echo(
            f"agentworld: {failed} failed. `agentworld reward failures --evaluator {name}` says why,"
            " `--again failed` tries once more",
            err=True,
        )
    return 1 if report.failed else 0


def show_report(report: RunReport, *, dry_run: bool) -> None:
    """The table of a run, and how much it was over."""
    columns = ("evaluator", "evaluated", "to do", "known", "failed", "skipped", "mean", "seconds each")
    rows = [
        (
            name,
            "" if dry_run else each.evaluated,
            each.due if dry_run else "",
            each.cached,
            each.failed,
            each.skipped,
            "" if dry_run else output.number(each.mean),
            "" if dry_run else output.number(each.seconds_each),
        )
        for name, each in report.evaluators.items()
    ]
    output.table(columns, rows, right=columns[1:], whole=columns[:1])
    groups = f" and {output.count(report.groups, 'group')}" if report.groups else ""
    runs = output.count(report.trajectories, "trajectory", "trajectories")
    typer.echo(f"{runs}{groups}" + ("; nothing was evaluated" if dry_run else ""))
    for name, error in report.resting.items():
        typer.echo(f"agentworld: {name} rests: {output.plain(output.clip(error, 300))}", err=True)


def show_failures(
    evaluator: str | None, trajectory: str | None, limit: int, pool: str | None, url: str | None, *, as_json: bool
) -> None:
    """A table of what evaluators failed on, the earliest first."""
    with source(pool, url) as opened:
        page = opened.list_evaluations(
            evaluator=evaluator,
            target="trajectory" if trajectory is not None else None,
            target_id=trajectory,
            state="failed",
            limit=limit,
        )
    if as_json:
        for one in page.items:
            record = {
                name: getattr(one, name)
                for name in ("evaluator", "target", "target_id", "error", "attempts", "seconds", "at")
            }
            output.emit_json(record)
        return
    rows = [
        (
            output.moment(one.at),
            output.plain(one.evaluator),
            f"{one.target} {one.target_id}",
            one.attempts,
            output.plain(output.clip(one.error or "", 200)),
        )
        for one in page.items
    ]
    output.table(("when", "evaluator", "on", "attempts", "why"), rows, right=("attempts",), whole=("on",))
    if not rows:
        typer.echo("No evaluation has failed")
    if page.next_cursor is not None:
        typer.echo(f"The first {limit}; see --limit")


def _say(line: str) -> None:
    typer.echo(f"agentworld: {output.plain(output.clip(line, 400))}", err=True)


@contextmanager
def _evaluated(pool: str | None, url: str | None, stop: threading.Event) -> Iterator[Pool]:
    """What the evaluators are run over: a pool of this process, or a server's."""
    if url is None:
        with opened_pool(pool) as opened:
            yield opened.store
        return
    from agentworld.cli.reward_over_http import OverHttp

    with source(pool, url) as factory:
        yield cast("Pool", OverHttp(cast("Factory", factory), stop))  # It has what run_rewards uses of a pool.


@contextmanager
def opened_pool(pool: str | None) -> Iterator[EmbeddedPool]:
    """The pool that the option names, else the one in this folder."""
    check_given("--pool", pool)
    opened = open_existing(pool or DEFAULT_POOL)
    try:
        yield opened
    finally:
        opened.close()
