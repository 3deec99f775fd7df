"""What the demo leaves behind: the table, metrics.json and the reward curve."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from agentworld.demo.recipe import TASK_SETS
from agentworld.demo.state import STAGES, DemoFolder, DemoState, write_atomically
from agentworld.pool.protocol import PoolStats


def write_results(folder: DemoFolder, state: DemoState, stats: PoolStats) -> dict[str, Any]:
    """Write metrics.json and curve.png; returns the metrics."""
    metrics: dict[str, Any] = {
        "plan": msgspec.to_builtins(state.plan),
        "pool": msgspec.to_builtins(stats),
        "success": {
            name: {
                "fine_tuned": state.figures["evaluate fine-tuned"]["sets"][name],
                "improved": state.figures["evaluate improved"]["sets"][name],
            }
            for name in TASK_SETS
        },
        "curve": state.curve,
        "seconds": {stage: state.seconds[stage] for stage in STAGES},
        "policy_version": state.figures["improve"]["version"],
    }
    write_atomically(folder.path / "metrics.json", msgspec.json.format(msgspec.json.encode(metrics), indent=2) + b"\n")
    draw_curve(folder.path / "curve.png", state.curve)
    return metrics


def print_table(metrics: dict[str, Any], folder: Path, console: Console) -> None:
    """The demo in numbers, and where to look next."""
    pool = metrics["pool"]
    table = Table(title="What the factory holds", show_header=False)
    table.add_row("trajectories", f"{sum(pool['trajectories'].values()):,}")
    table.add_row("steps", f"{pool['steps']:,}")
    stored, flat = pool["tokens_stored"], pool["tokens_flat"]
    table.add_row("tokens stored", f"{stored:,}")
    table.add_row("tokens if stored flat", f"{flat:,} ({_ratio(flat, stored)})")
    table.add_row("policy version", str(metrics["policy_version"]))
    console.print(table)

    table = Table(
        "task set", "held-out tasks", "fine-tuned", "after GRPO", title="Success of the policy, sampling at 1.0"
    )
    for name, both in metrics["success"].items():
        shown = [
            f"{each['success']:.3f} ± {each['standard_error']:.3f}" for each in (both["fine_tuned"], both["improved"])
        ]
        table.add_row(name, str(both["improved"]["tasks"]), *shown)
    console.print(table)

    table = Table("stage", "seconds", title="Time")
    for stage, seconds in metrics["seconds"].items():
        table.add_row(stage, f"{seconds:.1f}")
    table.add_row("together", f"{sum(metrics['seconds'].values()):.1f}")
    console.print(table)
    console.print(f"In {folder}: pool.db, weights/, metrics.json, curve.png, logs/", highlight=False)
    command = sys.argv[0] if sys.argv[0].endswith("agentworld") else "agentworld"
    console.print(
        f"Look at it: {command} trajectories list --pool sqlite:///{folder}/pool.db --where 'reward >= 1' --limit 10",
        highlight=False,
        soft_wrap=True,
    )


def _ratio(flat: int, stored: int) -> str:
    if flat < 1.05 * stored:
        return "as many: these conversations are shorter than the blocks of 128 that are shared"
    return f"{flat / max(1, stored):.1f} times as many"


def draw_curve(path: Path, curve: list[dict[str, Any]]) -> None:
    """Mean reward of the rollouts of each iteration, by task set, with standard errors, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7.0, 4.2), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    for name in TASK_SETS:
        points = [(entry["version"], entry["sets"][name]) for entry in curve]
        versions = [version for version, _ in points]
        means = [own["success"] for _, own in points]
        errors = [own["standard_error"] or 0.0 for _, own in points]
        axes.errorbar(versions, means, yerr=errors, marker="o", capsize=3, label=name)
    axes.set_xlabel("policy version that played")
    axes.set_ylabel("mean reward of its rollouts")
    axes.set_ylim(-0.02, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    FigureCanvasAgg(figure).print_png(str(path))
