"""`agentworld reward`: put a reward on a trajectory or on one of its steps."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.cli.usage import CommandLineError

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Put rewards on trajectories and steps.")


@app.callback()
def _group() -> None:
    """Put rewards on trajectories and steps."""


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
