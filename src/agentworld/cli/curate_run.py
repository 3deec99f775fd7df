"""`agentworld curate run` and `agentworld curate checks`: checks over a pool, and which there are."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from agentworld.cli import output
from agentworld.cli.source import PoolOption

if TYPE_CHECKING:
    from agentworld.curation.running import Plan, RunReport

SHORT = 80  # characters of what a check says, in the list of all


def register(app: typer.Typer) -> None:
    """Add both commands to `agentworld curate`."""
    app.command()(run)
    app.command()(checks)


def run(
    checks: Annotated[
        list[str] | None, typer.Option(help="Only these, with commas between them, or all; repeatable.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with thresholds, evaluation sets and checks to run.")
    ] = None,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until it is stopped.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Go over everything, as if for the first time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    die_with_parent: Annotated[
        bool, typer.Option("--die-with-parent", help="Stop when the process that started this one ends.")
    ] = False,
    pool: PoolOption = None,
) -> int:
    """Check what is new in a pool, and write labels. Stopped anywhere, it goes on there.

    Ends with 1 where a check failed.
    """
    from agentworld.cli.progress import progress_bar
    from agentworld.cli.source import DEFAULT_POOL, check_given, open_existing
    from agentworld.cli.stopping import stopping
    from agentworld.curation.running import run_curation

    if die_with_parent:
        from agentworld.api.processes import die_with_parent as follow_parent

        follow_parent(os.getppid(), signal.SIGTERM)
    plan = _plan(checks, config, channel)
    check_given("--pool", pool)
    with open_existing(pool or DEFAULT_POOL) as opened, stopping() as stop, progress_bar() as show:
        report = run_curation(opened.store, plan, follow=follow, again=again, progress=show, say=_say, stop=stop)
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        show_report(report)
    for name, error in sorted(report.errors.items()):
        _say(f"{name} failed: {error}")
    if stop.is_set():
        _say("stopped; the same command goes on")
        return 0 if follow else 130
    return 1 if report.errors else 0


def checks(
    name: Annotated[str | None, typer.Argument(help="A check, to read all about it.", metavar="NAME")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record a line.")] = False,
) -> None:
    """List the checks, or say of one what it means and how it fails."""
    from agentworld.curation.checks import chosen, known

    there = known()
    names = sorted(there) if name is None else sorted(chosen([name]))
    if as_json:
        fields = ("name", "version", "scope", "gates", "optional", "values", "says", "fails")
        for each in names:
            output.emit_json({field: getattr(there[each], field) for field in fields})
    elif name is None or name == "all":
        rows = [
            (each, there[each].scope, "yes" if there[each].gates else "", _in_short(there[each].says)) for each in names
        ]
        output.table(("check", "of", "gates", "says"), rows, whole=("check",))
        typer.echo("All about one: agentworld curate checks NAME", err=True)
    else:
        check = there[name]
        typer.echo(f"{check.name}, version {check.version}, of scope {check.scope}; its label is check.{check.name}")
        typer.echo(f"Value: {check.values}\n\n{check.says}\n\nHow it fails: {check.fails}")


def _in_short(says: str) -> str:
    """The first sentence, cut at a word where it is long."""
    return textwrap.shorten(says.split(". ")[0].rstrip("."), SHORT, placeholder=" …")


def show_report(report: RunReport) -> None:
    """The table of labels that changed, and how much was checked."""
    names = sorted(report.labels.keys() | report.removed.keys())
    rows = [(f"check.{name}", report.labels.get(name, 0), report.removed.get(name, 0)) for name in names]
    columns = ("label", "set", "taken away")
    if rows:
        output.table(columns, rows, right=columns[1:], whole=columns[:1])
    groups = f" and {output.count(report.groups, 'group')}" if report.groups else ""
    runs = output.count(report.trajectories, "trajectory", "trajectories")
    typer.echo(f"Checked {runs} with {output.count(report.steps, 'step')}{groups}")
    if report.reviews:
        typer.echo(f"Asked people to look at {report.reviews}, as judges are unsure: agentworld review next")


def _plan(checks: list[str] | None, config: Path | None, channel: str | None) -> Plan:
    from agentworld.curation.running import CurateSettings, plan_of, read_curate_settings

    settings = CurateSettings() if config is None else read_curate_settings(config)
    if checks:
        names = [name.strip() for each in checks for name in each.split(",")]
        settings = msgspec.structs.replace(settings, run=tuple(filter(None, names)))
    if channel is not None:
        settings = msgspec.structs.replace(settings, channel=channel)
    return plan_of(
        settings, None if config is None else config.parent, source="--checks" if config is None else str(config)
    )


def _say(line: str) -> None:
    typer.echo(f"agentworld: {output.plain(output.clip(line, 400))}", err=True)
