"""`agentworld bench`: measurements on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
import typer

from agentworld.bench import checks, gateway, importing
from agentworld.bench.figure import Figure
from agentworld.bench.gateway_bench import GatewayBench
from agentworld.bench.peers import ENVIRONMENTS
from agentworld.bench.pool import SECTIONS, measure
from agentworld.bench.record import Bench
from agentworld.cli import output
from agentworld.cli.progress import progress_lines
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
    wanted = _wanted(section, SECTIONS)
    if engine != "sqlite" and not engine.startswith("postgres"):
        raise CommandLineError(f"no engine {engine!r}", path="engine", hint="Use sqlite, or postgresql://...")
    name = "sqlite" if engine == "sqlite" else "postgres"
    with _place(folder) as place:
        bench = Bench(steps=steps, url=None if engine == "sqlite" else engine, folder=place, large=large)
        told = _Told(("pool", "flat table"), as_json, f" ({bench.engine})")
        for each, figures in measure(bench, wanted):
            told.section(each, figures)
    told.end({"engine": name, "steps": steps})


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
    wanted = _wanted(section, gateway.SECTIONS)
    with _place(folder) as place:
        bench = GatewayBench(folder=place, calls=calls, tokenizer=tokenizer, environments=peers or ENVIRONMENTS)
        if not bench.cores.apart:
            bench.notes.append("there is one core: servers, engine and callers share it")
        told = _Told(("gateway", "engine alone"), as_json)
        for each, figures in gateway.measure(bench, wanted):
            told.section(each, figures)
    told.end({"calls": calls}, bench.notes)


@app.command("checks")
def checks_(
    trajectories: Annotated[
        int, typer.Option("--trajectories", min=16, help="Trajectories of 20 steps that are checked.")
    ] = 400,
    ids: Annotated[int, typer.Option("--ids", min=40, help="New ids of each step, of 4 characters each.")] = 500,
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
    wanted = _wanted(section, checks.SECTIONS)
    told = _Told(("checks", "without"), as_json)
    with _place(folder) as place, progress_lines() as show:
        bench = checks.ChecksBench(folder=place, trajectories=trajectories, ids=ids, texts=texts, progress=show)
        for each, figures in checks.measure(bench, wanted):
            told.section(each, figures)
    told.end({"trajectories": trajectories, "ids": ids, "texts": texts})


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
    wanted = _wanted(section, importing.SECTIONS)
    told = _Told(("import", "flat"), as_json)
    with _place(folder) as place:
        for each, figures in importing.measure(importing.ImportBench(folder=place, size=size), wanted):
            told.section(each, figures)
    told.end({"size": size})


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

    wanted = _wanted(section, merging.SECTIONS)
    told = _Told(("merged", "beside"), as_json)
    bench = merging.MergeBench(tokens=tokens, scale=scale, repeats=repeats)
    for each, figures in merging.measure(bench, wanted):
        told.section(each, figures)
    told.end({"tokens": tokens, "scale": scale, "repeats": repeats})


class _Section(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...


class _Told:
    """What is printed of the sections as they are measured. `names`: of the two columns of values; `beside`: what
    follows each title.
    """

    def __init__(self, names: tuple[str, str], as_json: bool, beside: str = "") -> None:
        self._names, self._as_json, self._beside = names, as_json, beside
        self._found: dict[str, list[dict[str, Any]]] = {}
        self._short = False

    def section(self, section: _Section, figures: Sequence[Figure]) -> None:
        """The figures of one section."""
        self._short = self._short or any(figure.met is False for figure in figures)
        self._found[section.name] = [_plain(figure) for figure in figures]
        if self._as_json:
            return
        typer.echo(f"\n{section.title}{self._beside}")
        rows = [
            (figure.name, _number(figure.value), _number(figure.beside), figure.unit, _bound(figure), _is(figure))
            for figure in figures
        ]
        output.table(("measured", *self._names, "unit", "required", "is"), rows, right=(*self._names, "required"))

    def end(self, about: dict[str, Any], notes: Sequence[str] | None = None) -> None:
        """The JSON, or the notes; exit code 1 where a figure falls short."""
        if self._as_json:
            more = {} if notes is None else {"notes": list(notes)}
            output.emit_json({**about, "sections": self._found, **more})
        else:
            for note in notes or ():
                typer.echo(f"note: {note}")
        if self._short:
            raise typer.Exit(1)


def _wanted(asked: Sequence[str] | None, sections: Sequence[_Section]) -> Sequence[str]:
    """The names that were asked for; CommandLineError for one that is none."""
    known = [each.name for each in sections]
    for name in asked or ():
        if name not in known:
            raise CommandLineError(f"no section {name!r}", path="section", hint=f"There are {', '.join(known)}")
    return asked or ()


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """A folder for as long as something is measured."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="agentworld-bench-") as place:
        yield Path(place)


def _bound(figure: Figure) -> str:
    if figure.required is None:
        return ""
    return f"{'>=' if figure.better == 'more' else '<='} {_number(figure.required)}"


def _is(figure: Figure) -> str:
    return {True: "met", False: "MISSED", None: ""}[figure.met]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plain(figure: Figure) -> dict[str, Any]:
    return {**msgspec.structs.asdict(figure), "met": figure.met}
