"""`agentworld dataset export`: a version as files that trainers load, and `dataset layouts`: which there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentworld.cli import output
from agentworld.cli.source import PoolOption, UrlOption, source

if TYPE_CHECKING:
    from agentworld.curation.exports import ExportReport
    from agentworld.curation.exports.report import ExportedSplit


def register(app: typer.Typer) -> None:
    """Add both commands to `agentworld dataset`."""
    app.command()(export)
    app.command()(layouts)


def export(
    version: Annotated[str, typer.Argument(help="NAME, or NAME@ and digits of its digest.", metavar="VERSION")],
    layout: Annotated[str, typer.Option("--format", help="The layout; `dataset layouts` lists them.")],
    out: Annotated[Path, typer.Option("--out", help="A folder that is not there yet.")],
    file_format: Annotated[
        str | None, typer.Option("--format-file", help="parquet or jsonl; of atif json.", show_default=False)
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only this split; repeatable.")] = None,
    style: Annotated[str | None, typer.Option(help="A variant of the layout.")] = None,
    expand: Annotated[
        str | None, typer.Option(help="last: one row a branch; each-step: one a step, with its context as it was.")
    ] = None,
    thinking: Annotated[str, typer.Option(help="Reasoning in messages: keep, drop, or last.")] = "keep",
    arguments: Annotated[
        str | None, typer.Option(help="Of tool calls: json objects, or text as it was sent.", show_default=False)
    ] = None,
    train: Annotated[
        str | None, typer.Option(help="Components of replies that are trained on: reasoning,tool_calls,answer.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="The model's tokenizer, a name or a folder.")] = None,
    images: Annotated[bool, typer.Option("--images", help="Write images too.")] = False,
    reward: Annotated[
        str, typer.Option(help="The value that says how good: reward, reward.NAME, rating.NAME, label.NAME.")
    ] = "reward",
    threshold: Annotated[float, typer.Option(help="From which value on it is good.")] = 0.5,
    margin: Annotated[float | None, typer.Option(help="Pairs of rewards within a group that are so far apart.")] = None,
    sources: Annotated[str | None, typer.Option(help="Of pairs: comparisons,corrections,rewards.")] = None,
    most: Annotated[int, typer.Option(help="At most so many pairs of one group.")] = 4,
    whole: Annotated[bool, typer.Option("--whole", help="Pairs of whole conversations from where they part.")] = False,
    truncated: Annotated[
        str, typer.Option(help="Rows with replies that the limit of tokens cut off: drop or keep.")
    ] = "drop",
    license: Annotated[str | None, typer.Option(help="Of the data, for the card.")] = None,
    shard_mb: Annotated[int, typer.Option(help="A new file after so many MB.")] = 500,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.")] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> int:
    """Write a frozen version into a folder that `datasets`, TRL and verl load, with a card.

    The folder is there once all is in it; of a server's version it is made here, of what the server sends row by row.
    What cannot be a row of the layout is left out, and counted by reason.
    """
    from agentworld.cli.progress import progress_bar
    from agentworld.cli.stopping import stopping

    asked: dict[str, Any] = {
        "style": style, "expand": expand, "thinking": thinking, "arguments": arguments, "tokenizer": tokenizer,
        "images": images, "reward": reward, "threshold": threshold, "margin": margin, "most": most, "whole": whole,
        "truncated": truncated, "train": _names(train), "sources": _names(sources),
    }  # fmt: skip
    with source(pool, url) as opened, stopping() as stop, progress_bar() as show:
        try:
            report = opened.export_dataset(
                version,
                layout,
                out,
                split=split or None,
                file_format=file_format,
                license=license,
                shard_bytes=shard_mb << 20,
                progress=show,
                stopped=stop.is_set,
                **asked,
            )
        except KeyboardInterrupt:
            typer.echo("agentworld: stopped; nothing was written", err=True)
            return 130
    if as_json:
        output.emit_json(report)
    else:
        show_report(report)
    return 0


def layouts(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record a line.")] = False,
) -> None:
    """List the layouts of exports with their styles and the options that they take."""
    from agentworld.curation.exports import known_layouts

    there = known_layouts()
    if as_json:
        for each in there.values():
            output.emit_json({"name": each.name, "says": each.says, "styles": each.styles, "takes": sorted(each.takes)})
        return
    rows = [(each.name, ", ".join(each.styles), each.says) for each in there.values()]
    output.table(("layout", "styles", "says"), rows, whole=("layout",))


def _files(report: ExportReport, split: ExportedSplit) -> int:
    """How many files a split has: of documents there is one for each row."""
    return split.rows if report.file_format == "json" else len(split.files)


def show_report(report: ExportReport) -> None:
    """The splits with their rows, and what was left out."""
    from agentworld.curation.exports.report import reasons

    columns = ("split", "rows", "files")
    rows = [(split, f"{each.rows:,}", _files(report, each)) for split, each in report.splits.items()]
    output.table(columns, rows, right=columns[1:], whole=columns[:1])
    for reason, count, means in reasons(report.left_out):
        typer.echo(
            f"Left out: {count:,} {output.plain(reason)} ({means})" if means else f"Left out: {count:,} {reason}"
        )
    size = report.size / 1e6
    typer.echo(
        f"{output.plain(report.version)} as {report.layout} in {output.plain(report.folder)}: {report.rows:,} rows, "
        f"{size:,.1f} MB of {report.file_format}"
    )


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (given or "").split(",") if name.strip())
