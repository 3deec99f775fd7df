"""`agentworld curate policy`: the rules in force, tried and changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentworld.cli import output
from agentworld.cli.progress import progress_bar
from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.cli.usage import CommandLineError
from agentworld.cli.who import ByOption, name_of

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.factory import EmbeddedPool
    from agentworld.records import ActivePolicy, CurationPolicy, CurationPreview

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="The rules that decide what is served.")

ChannelOption = Annotated[str | None, typer.Option("--channel", help="Only of this channel.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


@app.command("set")
def set_(
    path: Annotated[Path, typer.Argument(help="A TOML file with name, channel, default and rules.", metavar="FILE")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would decide.")] = False,
    latest: Annotated[
        int | None, typer.Option("--latest", min=1, help="Say it of so many latest trajectories only.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=0, max=100, help="Ids shown of each rule, at most.")] = 3,
    yes: YesOption = False,
    by: ByOption = None,
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a policy in force for its channel: everything that has ended there is decided anew. Shows what that changes,
    and asks, before it does.
    """
    from agentworld.curation.policies import doubts, read_policy

    policy = read_policy(path)
    for doubt in doubts(policy):
        typer.echo(output.plain(output.clip(f"agentworld: {doubt}", 400)), err=True)
    _check_asking(dry_run or yes)
    who = name_of(by)
    with source(pool, url) as opened:
        if dry_run or not as_json:
            with progress_bar() as progress:
                preview = opened.try_curation(policy, samples=samples, limit=latest, progress=progress)
            if as_json:
                output.emit_json(preview)
            else:
                _show_preview(policy, preview)
                _warn_of_channel(opened, policy.channel)
        if dry_run:
            return
        if not yes:
            question = f"Put {policy.name} in force for the channel {policy.channel}?"
            typer.confirm(output.plain(question), abort=True, err=True)
        with progress_bar() as progress:
            active = opened.set_curation(policy, source=who, progress=progress)
    if as_json:
        output.emit_json(active)
    else:
        typer.echo(output.plain(f"{active.policy.name} ({active.version}) is in force for {active.policy.channel}"))


def _warn_of_channel(opened: EmbeddedPool | Factory, channel: str) -> None:
    """Say so where nothing is in the channel, as of a name that was misspelt."""
    if opened.list_trajectories(channel=channel, limit=1).items:
        return
    there = sorted({each.channel for each in opened.list_trajectories(limit=100, order="newest").items})
    others = f"; the latest are in {', '.join(there)}" if there else ""
    typer.echo(output.plain(f"agentworld: no trajectory is in channel {channel!r}{others}"), err=True)


@app.command()
def show(
    channel: ChannelOption = None, pool: PoolOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Show the policies in force with their rules."""
    with source(pool, url) as opened:
        found = opened.curation(channel)
    if as_json:
        output.emit_json(found)
        return
    if not found:
        typer.echo("No policy is in force.")
    for number, one in enumerate(found):
        if number:
            typer.echo()
        _show_policy(one)


@app.command()
def clear(
    channel: Annotated[str, typer.Option("--channel", help="The channel.")] = "train",
    yes: YesOption = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Take a channel's policy out of force, with all that it decided. What people decided stays."""
    _check_asking(yes)
    with source(pool, url) as opened:
        if not yes:
            typer.confirm(output.plain(f"Serve {channel} without any policy?"), abort=True, err=True)
        with progress_bar() as progress:
            there = opened.clear_curation(channel, progress=progress)
    typer.echo(output.plain(f"{channel} has no policy" + (" any more" if there else ", and had none")))


@app.command()
def history(
    channel: ChannelOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, at most.")] = 20,
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the policies that are or were in force, the latest first."""
    with source(pool, url) as opened:
        found = opened.list_curations(channel, limit=limit)
    if as_json:
        for one in found:
            output.emit_json(one)
        return
    rows = [
        (
            one.version,
            one.policy.name,
            one.policy.channel,
            len(one.policy.rules),
            one.source,
            output.moment(one.created_at),
            output.moment(one.ended_at) or "in force",
            one.pending or "",
        )
        for one in found
    ]
    columns = ("version", "name", "channel", "rules", "by", "since", "until", "pending")
    output.table(columns, rows, right=("rules", "pending"), whole=("version",), spare=("by",))


def _check_asking(answered: bool) -> None:
    if not answered and not sys.stdin.isatty():
        raise CommandLineError("nobody can be asked, as this is no terminal", hint="Give --yes to do it without it")


def _show_preview(policy: CurationPolicy, preview: CurationPreview) -> None:
    """What a policy would decide, rule by rule, and what becomes of trajectories by it."""
    named = [*enumerate(policy.rules, 1), (0, f"none of them: {policy.default}")]
    rows = [
        (number or "", rule, preview.by_rule.get(number, 0), ", ".join(preview.samples.get(number, [])))
        for number, rule in named
    ]
    output.table(("#", "rule", "holds for", "such as"), rows, right=("#", "holds for"))
    typer.echo()
    part = "" if preview.whole else ", the latest only"
    runs = output.count(preview.trajectories, "trajectory", "trajectories")
    typer.echo(f"Looked at {runs} and {output.count(preview.steps, 'step')}{part}.")
    for change, count in preview.changes.items():
        typer.echo(f"{count:>8,}  {change}")
    if not preview.changes:
        typer.echo("No trajectory would change its readiness.")


def _show_policy(one: ActivePolicy) -> None:
    lines = [
        ("channel", one.policy.channel),
        ("policy", f"{one.policy.name} ({one.version})"),
        ("since", f"{output.moment(one.created_at)}, says {one.source}"),
        ("pending", output.count(one.pending, "trajectory", "trajectories") if one.pending else ""),
        ("default", one.policy.default),
    ]
    for name, value in lines:
        if value:
            typer.echo(f"{name:<9}{output.plain(value)}")
    for number, rule in enumerate(one.policy.rules, 1):
        typer.echo(f"{number:>7}  {output.plain(rule)}")
