"""`agentworld pool`: the group, counters and migrations; the rest is in pool_keeping."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from agentworld.cli import output, pool_keeping
from agentworld.cli.source import DEFAULT_POOL, PoolOption, UrlOption, check_given, open_existing, source
from agentworld.cli.spec_report import report_lines
from agentworld.cli.usage import CommandLineError
from agentworld.records import BatchSpec

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Look at a pool, check it, collect or delete from it, back it up, export, import, migrate.",
)
for _command in (
    pool_keeping.check,
    pool_keeping.gc,
    pool_keeping.delete,
    pool_keeping.backup,
    pool_keeping.restore,
):
    app.command()(_command)
app.command(name="export")(pool_keeping.export)
app.command(name="import")(pool_keeping.import_)


@app.command()
def stats(
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """What the pool holds. Tokens flat is what storing each step's whole sequence would take."""
    with source(pool, url) as opened:
        counters = opened.stats()
    if as_json:
        output.emit_json(counters)
        return
    rows: list[tuple[str, object]] = []
    for name in counters.__struct_fields__:
        rows.extend(_rows(name.replace("_", " "), getattr(counters, name)))
    if counters.tokens_stored:
        rows.append(("tokens flat / stored", f"{counters.tokens_flat / counters.tokens_stored:.2f}"))
    output.table(("counter", "value"), rows, right=("value",))


@app.command()
def explain(
    consumer: Annotated[str, typer.Argument(help="The consumer's name.", metavar="CONSUMER")],
    target: Annotated[
        str | None, typer.Argument(help="Id of a step, a trajectory or a group. [default: all]", metavar="[ID]")
    ] = None,
    spec: Annotated[
        str | None, typer.Option(help="What it asks for, as JSON. [default: as for its latest batch]")
    ] = None,
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Why something is, or is not, handed out to a consumer: the first reason.

    Without ID: whether the consumer can have a batch, what keeps the rest, and what to do.
    """
    asked = None if spec is None else _spec(spec)
    with source(pool, url) as opened:
        if target is None:
            report = opened.check_spec(consumer, asked)
        else:
            found = opened.explain_unit(consumer, target, asked)
    if target is None:
        if as_json:
            output.emit_json(report)
            return
        for line in report_lines(report):
            typer.echo(line)
        return
    if as_json:
        output.emit_json(found)
        return
    typer.echo(output.plain(f"{found.unit} {found.key}: {found.reason}: {found.message}"))


class _StrictSpec(BatchSpec, frozen=True, forbid_unknown_fields=True):
    """A spec that a person wrote: a misspelt field is refused, not left out of the question."""


def _spec(text: str) -> BatchSpec:
    try:
        return msgspec.json.decode(text, type=_StrictSpec)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise CommandLineError(
            f"this is no spec: {error}", path="--spec", hint='Write it like {"method": "sft"}'
        ) from None


def _rows(name: str, value: Any) -> Iterator[tuple[str, object]]:
    """The lines of a counter, or of those by some name."""
    if isinstance(value, dict):
        for key, held in sorted(value.items()):
            yield from _rows(f"{name}: {key}", held)
    elif isinstance(value, msgspec.Struct):
        for figure in value.__struct_fields__:
            yield from _rows(f"{name}: {figure}", getattr(value, figure))
    else:
        yield name, "-" if value is None else value


@app.command()
def migrate(pool: PoolOption = None) -> None:
    """Bring the pool's schema to this version's."""
    check_given("--pool", pool)
    url = pool or DEFAULT_POOL
    # Opening a store migrates it.
    opened = open_existing(url, migrate=True)
    opened.close()
    typer.echo(f"{opened.url} has the schema of this version")
