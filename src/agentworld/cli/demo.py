"""`agentworld demo`: the whole lifecycle on this machine."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from agentworld.errors import AgentWorldError

# Engine and trainer, the black-box agent, the task sets, the curve.
PACKAGES = ("torch", "transformers", "openai", "reasoning_gym", "matplotlib")
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Less of each: under 2 minutes on 2 cores.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the pool, weights and results.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, tasks and sampling.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what an earlier demo left in the folder.")] = False,
) -> int:
    """Collect, reward, fine-tune, improve, evaluate: offline, ending with a trained policy.

    Ctrl-C stops every process; the same command again goes on where it stopped.
    """
    _check_extras()
    # Several processes share few cores; threads that spin while they wait would take them from one another.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from rich.console import Console

    from agentworld.demo.recipe import full_plan, quick_plan
    from agentworld.demo.state import DemoFolder

    console = Console()
    plan = quick_plan(seed) if quick else full_plan(seed)
    folder = DemoFolder(out)
    try:
        state = folder.open_state(plan, fresh=fresh)
        if state.complete:
            console.print(f"The demo in {out} is complete; --fresh starts afresh.", highlight=False)
        elif state.seconds:
            console.print(f"Going on after: {', '.join(state.seconds)}; --fresh starts afresh.", highlight=False)
        return _run(folder, state, console)
    finally:
        folder.close()


def _check_extras() -> None:
    """AgentWorldError where a package is missing that a stage of the demo needs, before anything is written."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise AgentWorldError(
            f"the demo needs the Python package{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            hint='Install them with: pip install "agentworld[engine,train,agents,tasks]"; `make demo` does',
        )


def _run(folder: Any, state: Any, console: Any) -> int:
    from agentworld.demo.results import print_table, write_results
    from agentworld.demo.services import Services
    from agentworld.pool import open_store

    began = time.monotonic()
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if not state.complete:
            from agentworld.demo.factory import DemoFactory
            from agentworld.demo.stages import Stages, newest_weights

            console.print("Starting engine, teacher, gateway and pool server (10 to 20 s)", highlight=False)
            with Services(folder.logs) as services:
                try:
                    factory = DemoFactory(folder, services, *newest_weights(folder))
                    console.print(f"Gateway {factory.gateway_url}, pool server {factory.pool_url}", highlight=False)
                    Stages(folder, state, factory).run(lambda stage: console.rule(stage, align="left"))
                except KeyboardInterrupt:
                    console.print("\nStopping every process")
                    raise
        store = open_store(folder.pool_url)
        try:
            metrics = write_results(folder, state, store.stats())
        finally:
            store.close()
    except KeyboardInterrupt:
        console.print("Stopped. The same command again goes on after the last stage or update that ended.")
        return 130
    finally:
        signal.signal(signal.SIGTERM, previous)
    print_table(metrics, folder.path, console)
    if time.monotonic() - began > 5:
        console.print(f"This run took {time.monotonic() - began:.0f} s", highlight=False)
    return 0


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
