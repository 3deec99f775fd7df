"""`agentworld bench`: measurements on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from agentworld.bench import checks, gateway, importing
from agentworld.bench.peers import ENVIRONMENTS
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


@app.command("gateway")
def gateway_(
    calls: Annotated[int, typer.Option("--calls", min=64, help="Calls that each rate is measured with.")] = 2_000,
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", help="For token-in: folder, tokenizer.json or name of a tokenizer.")
    ] = "pocket",
    section: Annotated[list[str] | None, typer.Option("--section", help="Measure this section; repeatable.")] = None,
    peers: Annotated[Path | None, typer.Option("--peers", help="Where the environments of other gateways are.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where pools go; a temporary folder by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """What the gateway costs before an engine that costs nothing. Exit code 1 where a figure falls short."""
    known = [each.name for each in gateway.SECTIONS]
    for name in section or ():
        if name not in known:
            raise CommandLineError(f"no section {name!r}", path="section", hint=f"There are {', '.join(known)}")
    found: dict[str, list[dict[str, Any]]] = {}
    short = False
    with tempfile.TemporaryDirectory(dir=folder, prefix="agentworld-bench-") as place:
        bench = gateway.GatewayBench(
            folder=Path(place), calls=calls, tokenizer=tokenizer, environments=peers or ENVIRONMENTS
        )
        if not bench.cores.apart:
            bench.notes.append("there is one core: servers, engine and callers share it")
        for each, figures in gateway.measure(bench, section or ()):
            short = short or any(figure.met is False for figure in figures)
            found[each.name] = [{**msgspec.structs.asdict(figure), "met": figure.met} for figure in figures]
            if not as_json:
                typer.echo(f"\n{each.title}")
                _print_gateway(figures)
    if as_json:
        output.emit_json({"calls": calls, "sections": found, "notes": bench.notes})
    for note in bench.notes if not as_json else ():
        typer.echo(f"note: {note}")
    if short:
        raise typer.Exit(1)


@app.command("checks")
def checks_(
    trajectories: Annotated[
        int, typer.Option("--trajectories", min=16, help="Trajectories of 20 steps that are checked.")
    ] = 400,
    texts: Annotated[
        int, typer.Option("--texts", min=100, help="Texts that near-duplicates are searched among.")
    ] = 100_000,
    section: Annotated[list[str] | None, typer.Option("--section", help="Measure this section; repeatable.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where the pool goes; a temporary folder by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """What checks cost, beside the same without them. Exit code 1 where a figure falls short."""
    known = [each.name for each in checks.SECTIONS]
    for name in section or ():
        if name not in known:
            raise CommandLineError(f"no section {name!r}", path="section", hint=f"There are {', '.join(known)}")
    found: dict[str, list[dict[str, Any]]] = {}
    short = False
    with tempfile.TemporaryDirectory(dir=folder, prefix="agentworld-bench-") as place:
        bench = checks.ChecksBench(folder=Path(place), trajectories=trajectories, texts=texts)
        for each, figures in checks.measure(bench, section or ()):
            short = short or any(figure.met is False for figure in figures)
            found[each.name] = [{**msgspec.structs.asdict(figure), "met": figure.met} for figure in figures]
            if not as_json:
                typer.echo(f"\n{each.title}")
                _print_checks(figures)
    if as_json:
        output.emit_json({"trajectories": trajectories, "texts": texts, "sections": found})
    if short:
        raise typer.Exit(1)


@app.command("import")
def import_(
    size: Annotated[int, typer.Option("--size", min=1, help="MiB of each format's file.")] = 64,
    section: Annotated[list[str] | None, typer.Option("--section", help="Measure this section; repeatable.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where files go; a temporary folder by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """How fast files come in, beside a flat table of their lines. Exit code 1 where a figure falls short."""
    known = [each.name for each in importing.SECTIONS]
    for name in section or ():
        if name not in known:
            raise CommandLineError(f"no section {name!r}", path="section", hint=f"There are {', '.join(known)}")
    found: dict[str, list[dict[str, Any]]] = {}
    short = False
    with tempfile.TemporaryDirectory(dir=folder, prefix="agentworld-bench-") as place:
        for each, figures in importing.measure(importing.ImportBench(folder=Path(place), size=size), section or ()):
            short = short or any(figure.met is False for figure in figures)
            found[each.name] = [{**msgspec.structs.asdict(figure), "met": figure.met} for figure in figures]
            if not as_json:
                typer.echo(f"\n{each.title}")
                _print_checks(figures, ("import", "flat"))
    if as_json:
        output.emit_json({"size": size, "sections": found})
    if short:
        raise typer.Exit(1)


@app.command("merge")
def merge_(
    tokens: Annotated[
        int, typer.Option("--tokens", min=10_000, help="Tokens of the batch whose tree is built.")
    ] = 1_000_000,
    scale: Annotated[
        float, typer.Option("--scale", min=0.01, max=10.0, help="Factor of the lengths of what is trained.")
    ] = 0.75,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Passes each way; the median counts.")] = 3,
    section: Annotated[list[str] | None, typer.Option("--section", help="Measure this section; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """How fast token trees are built, and how much faster a model trains on them. Exit code 1 where a figure falls
    short.
    """
    from agentworld.bench import merging

    known = [each.name for each in merging.SECTIONS]
    for name in section or ():
        if name not in known:
            raise CommandLineError(f"no section {name!r}", path="section", hint=f"There are {', '.join(known)}")
    found: dict[str, list[dict[str, Any]]] = {}
    short = False
    bench = merging.MergeBench(tokens=tokens, scale=scale, repeats=repeats)
    for each, figures in merging.measure(bench, section or ()):
        short = short or any(figure.met is False for figure in figures)
        found[each.name] = [{**msgspec.structs.asdict(figure), "met": figure.met} for figure in figures]
        if not as_json:
            typer.echo(f"\n{each.title}")
            _print_checks(figures, ("merged", "beside"))
    if as_json:
        output.emit_json({"tokens": tokens, "scale": scale, "repeats": repeats, "sections": found})
    if short:
        raise typer.Exit(1)


def _print_checks(figures: Sequence[checks.Figure], names: tuple[str, str] = ("checks", "without")) -> None:
    rows = [
        (figure.name, _number(figure.value), _number(figure.beside), figure.unit, _bound(figure), _is(figure))
        for figure in figures
    ]
    columns = ("measured", *names, "unit", "required", "is")
    output.table(columns, rows, right=(*names, "required"))


def _print_gateway(figures: Sequence[gateway.Figure]) -> None:
    rows = [
        (figure.name, _number(figure.value), _number(figure.beside), figure.unit, _bound(figure), _is(figure))
        for figure in figures
    ]
    columns = ("measured", "gateway", "engine alone", "unit", "required", "is")
    output.table(columns, rows, right=("gateway", "engine alone", "required"))


def _bound(figure: Figure | gateway.Figure | checks.Figure) -> str:
    if figure.required is None:
        return ""
    return f"{'>=' if figure.better == 'more' else '<='} {_number(figure.required)}"


def _is(figure: Figure | gateway.Figure | checks.Figure) -> str:
    return {True: "met", False: "MISSED", None: ""}[figure.met]


def _print(figures: list[Figure]) -> None:
    rows = [
        (
            figure.name,
            _number(figure.pool),
            _number(figure.flat),
            figure.unit,
            _bound(figure),
            _is(figure),
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
