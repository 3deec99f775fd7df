"""`agentworld reward`: put rewards, run evaluators over a pool, see what they failed on, and calibrate them."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.cli.usage import CommandLineError

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Put rewards, run evaluators over a pool, see what they failed on, calibrate them.",
)


class Again(StrEnum):
    """What is evaluated once more."""

    failed = "failed"
    all = "all"


@app.callback()
def _group() -> None:
    """Put rewards, run evaluators over a pool, see what they failed on, calibrate them."""


@app.command("set", context_settings={"ignore_unknown_options": True})
def set_(
    trajectory: Annotated[str, typer.Argument(help="The trajectory's id.", metavar="TRAJECTORY")],
    value: Annotated[float, typer.Argument(help="The reward, a finite number.", metavar="VALUE")],
    name: Annotated[str, typer.Option(help="Its name; `reward` is the primary one.")] = "reward",
    step: Annotated[str | None, typer.Option(help="Id of a step, to reward that step instead of the run.")] = None,
    source_name: Annotated[str, typer.Option("--source", help="Who says so.")] = "cli",
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Set a reward. The same name from the same source again replaces the value. What is not there is waited for."""
    from agentworld.records import Reward

    if not math.isfinite(value):
        raise CommandLineError(f"a reward cannot be {value}", hint="Give a finite number")
    reward = Reward(value=value, trajectory_id=trajectory, step_id=step, name=name, source=source_name)
    with source(pool, url) as opened:
        result = opened.add_signals([reward])
    place = f"step {step}" if step else f"trajectory {trajectory}"
    note = f"; it waits, as there is no {place} yet" if result.waiting else ""
    typer.echo(f"{name} = {value:g} on {place}" + ("" if result.changed else " (it was so already)") + note)


@app.command()
def run(
    config: Annotated[
        list[Path], typer.Argument(help="TOML file with tables [[evaluator]]; several are as one.", metavar="CONFIG...")
    ],
    where: Annotated[
        str | None, typer.Option(help="Which of those that ended; otherwise the finished and truncated ones.")
    ] = None,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until it is stopped.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this evaluator, and those whose values it reads; repeatable.")
    ] = None,
    again: Annotated[Again | None, typer.Option(help="Once more: what failed, or all of it.")] = None,
    concurrency: Annotated[int, typer.Option(help="Evaluations of each evaluator at once.", min=1, max=1024)] = 8,
    retries: Annotated[int, typer.Option(help="Further tries after a failure that may pass.", min=0, max=10)] = 2,
    pause_after: Annotated[int, typer.Option(help="Failures in a row after which an evaluator rests.", min=1)] = 50,
    limit: Annotated[int | None, typer.Option(help="At most so many trajectories and groups.", min=1)] = None,
    shard: Annotated[str | None, typer.Option(help="I/N: the I-th of N parts, from 0; run each part once.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what there is to do; nothing is evaluated or written.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    die_with_parent: Annotated[
        bool, typer.Option("--die-with-parent", help="Stop when the process that started this one ends.")
    ] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> int:
    """Run evaluators here, over a pool or over what a server has. What is known already is not evaluated again; stopped
    anywhere, it goes on there.

    Ends with 1 where an evaluation failed.
    """
    from agentworld.cli.reward_runs import Asked, run_config

    asked = Asked(
        config=tuple(config),
        only=tuple(only or ()),
        where=where,
        channel=channel,
        shard=shard,
        again=again.value if again is not None else None,
        follow=follow,
        concurrency=concurrency,
        retries=retries,
        pause_after=pause_after,
        limit=limit,
        dry_run=dry_run,
    )
    return run_config(asked, pool, url, as_json=as_json, die_with_parent=die_with_parent)


@app.command()
def failures(
    evaluator: Annotated[str | None, typer.Option(help="Only of this evaluator.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="Only on this trajectory.")] = None,
    limit: Annotated[int, typer.Option(help="How many, at most.", min=1, max=1000)] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record a line.")] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """List what evaluators failed on, and why."""
    from agentworld.cli.reward_runs import show_failures

    show_failures(evaluator, trajectory, limit, pool, url, as_json=as_json)


@app.command()
def calibrate(
    reward: Annotated[str, typer.Argument(help="Name of the reward that is judged.", metavar="REWARD")],
    human: Annotated[str, typer.Argument(help="Name of the label or rating that people gave.", metavar="HUMAN")],
    threshold: Annotated[float, typer.Option(help="From where on a value is a yes.")] = 0.5,
    evaluator: Annotated[
        str | None, typer.Option(help="Of this evaluator's evaluations, with each criterion, not the rewards in force.")
    ] = None,
    where: Annotated[str | None, typer.Option(help="Only these trajectories.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    pool: PoolOption = None,
) -> None:
    """Say how far an evaluator agrees with people: accuracy, kappa, correlations, confusion, each criterion."""
    from agentworld.cli.reward_calibration import calibrated

    calibrated(reward, human, threshold, evaluator, where, channel, pool, as_json=as_json)
