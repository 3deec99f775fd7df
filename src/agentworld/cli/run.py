"""`agentworld run CONFIG`: agents over tasks, each rollout a trajectory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentworld.cli import output
from agentworld.cli.source import DEFAULT_URL
from agentworld.errors import ConfigError

if TYPE_CHECKING:
    from agentworld.agents.report import RunReport, Summary
    from agentworld.agents.run_config import RunConfig

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="TOML file: model, agents, task sets, rollouts.")],
    url: Annotated[
        str | None,
        typer.Option(envvar="AGENTWORLD_URL", help="The server; otherwise the file's url, or http://127.0.0.1:8400."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; the same name again continues it.")] = None,
    channel: Annotated[str | None, typer.Option(help="Channel of the pool, instead of the file's.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write every rollout's result to this JSON file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    api_key: Annotated[str | None, typer.Option(envvar="AGENTWORLD_API_KEY", help="Key of the server.")] = None,
) -> int:
    """Run agents over tasks: rollouts, groups, concurrency, retries, progress.

    Ends with 1 where a rollout has no usable trajectory, and with 130 after Ctrl-C; the same name again goes on.
    """
    import msgspec

    from agentworld.agents.run_config import read_run

    if report is not None:
        check_writable(report)
    settings = read_run(config)
    # Checkers, environments and task sets of the user are modules beside the configuration.
    sys.path.insert(0, str(config.parent.resolve()))
    changes = {"url": url, "name": name, "channel": channel}
    settings = msgspec.structs.replace(settings, **{field: value for field, value in changes.items() if value})
    try:
        done = asyncio.run(_run(settings, config.parent, quiet, api_key))
    except (KeyboardInterrupt, asyncio.CancelledError):
        again = f"; `agentworld run {config} --name {settings.name}` goes on" if settings.name else ""
        typer.echo(f"agentworld: stopped{again}", err=True)
        return 130
    show(done)
    if report is not None:
        report.write_bytes(msgspec.json.format(msgspec.json.encode(done), indent=1) + b"\n")
    return 1 if done.failed else 0


def check_writable(report: Path) -> None:
    """ConfigError where the report could not be written, which would be known only after the run."""
    if not report.parent.is_dir():
        raise ConfigError(f"there is no folder {report.parent}", hint="Make it, or give another --report")
    if report.is_dir():
        raise ConfigError(f"{report} is a folder", hint="Give --report the name of a file in it")
    if not os.access(report if report.exists() else report.parent, os.W_OK):
        raise ConfigError(f"{report} cannot be written", hint="Change its mode or owner, or give another --report")


async def _run(settings: RunConfig, folder: Path, quiet: bool, api_key: str | None) -> RunReport:
    """Connect and run; SIGTERM stops as Ctrl-C does."""
    from agentworld.agents.progress import Printed, Silent
    from agentworld.agents.run_config import run_from_config
    from agentworld.client.aio import AsyncFactory

    this = asyncio.current_task()
    assert this is not None
    with contextlib.suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    async with AsyncFactory(settings.url or DEFAULT_URL, api_key=api_key) as client:
        if quiet:
            return await run_from_config(client, settings, folder, progress=Silent())
        shown = Printed(sys.stderr)
        return await run_from_config(client, settings, folder, progress=shown, notify=shown.note)


def show(report: RunReport) -> None:
    """The numbers of each task set and agent, and what went wrong most."""
    columns = ("task set", "agent", "tasks", "rollouts", "failed", "truncated", "reward", "±", "steps", "tokens")
    output.table(columns, [_row(summary) for summary in report.summaries], right=columns[2:])
    typer.echo(f"{report.name}: {_amount(report)}")
    error = report.common_error()
    if error is not None:
        typer.echo(f"agentworld: {report.failed} rollouts failed, most often: {output.plain(error)}", err=True)


def _amount(report: RunReport) -> str:
    """How many rollouts, and how many of them an earlier start of this run had done."""
    all_of_them, earlier = len(report.rollouts), sum(result.skipped for result in report.rollouts)
    if earlier == all_of_them:
        return f"{all_of_them} complete already"
    new = all_of_them - earlier
    again = f", {earlier} complete already" if earlier else ""
    return f"{new} rollout{'' if new == 1 else 's'} in {report.seconds:.1f} s{again}"


def _row(summary: Summary) -> tuple[object, ...]:
    return (
        summary.task_set,
        summary.agent,
        summary.tasks,
        summary.rollouts,
        summary.failed,
        summary.truncated,
        output.number(summary.mean_reward),
        output.number(summary.standard_error),
        summary.steps,
        summary.prompt_tokens + summary.response_tokens,
    )
