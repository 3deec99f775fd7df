"""`agentworld bench`: measurements on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from agentworld.bench.pool import SECTIONS, measure
from agentworld.bench.record import Bench, Figure
from agentworld.cli import output
from agentworld.cli.usage import CommandLineError

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Measurements on this machine.")


@app.callback()
def _group() -> None:
    """Measurements on this machine."""


@app.command("pool")
def pool_(
    engine: Annotated[
        str, typer.Option("--engine", help="sqlite, or the URL of a PostgreSQL database to make schemas in.")
    ] = "sqlite",
    steps: Annotated[int, typer.Option("--steps", min=200, help="Steps that each rate is measured with.")] = 6_400,
    large: Annotated[int, typer.Option("--large", min=2_000, help="Steps of the large pool.")] = 1_000_000,
    section: Annotated[list[str] | None, typer.Option("--section", help="Measure this section; repeatable.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where files go; a temporary folder by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Rates and sizes of a pool, each beside a flat table in the same run. Exit code 1 where one falls short."""
    known = [each.name for each in SECTIONS]
    for name in section or ():
        if name not in known:
            raise CommandLineError(f"no section {name!r}", path="section", hint=f"There are {', '.join(known)}")
    if engine != "sqlite" and not engine.startswith("postgres"):
        raise CommandLineError(f"no engine {engine!r}", path="engine", hint="Use sqlite, or postgresql://...")
    found: dict[str, list[dict[str, Any]]] = {}
    short = False
    with tempfile.TemporaryDirectory(dir=folder, prefix="agentworld-bench-") as place:
        bench = Bench(steps=steps, url=None if engine == "sqlite" else engine, folder=Path(place), large=large)
        for each, figures in measure(bench, section or ()):
            short = short or any(figure.met is False for figure in figures)
            found[each.name] = [_plain(figure) for figure in figures]
            if not as_json:
                typer.echo(f"\n{each.title} ({bench.engine})")
                _print(figures)
    if as_json:
        output.emit_json({"engine": "sqlite" if engine == "sqlite" else "postgres", "steps": steps, "sections": found})
    if short:
        raise typer.Exit(1)


def _print(figures: list[Figure]) -> None:
    rows = [
        (
            figure.name,
            _number(figure.pool),
            _number(figure.flat),
            figure.unit,
            ""
            if figure.required is None
            else f"{'>=' if figure.better == 'more' else '<='} {_number(figure.required)}",
            {True: "met", False: "MISSED", None: ""}[figure.met],
        )
        for figure in figures
    ]
    columns = ("measured", "pool", "flat table", "unit", "required", "is")
    output.table(columns, rows, right=("pool", "flat table", "required"))


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plain(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "pool": figure.pool,
        "flat": figure.flat,
        "unit": figure.unit,
        "required": figure.required,
        "met": figure.met,
    }
