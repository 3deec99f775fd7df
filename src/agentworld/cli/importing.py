"""`agentworld import`: trajectories of other tools into a pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentworld.cli import output
from agentworld.cli.import_report import showing_progress, tell
from agentworld.cli.source import DEFAULT_POOL, PoolOption, check_given, open_or_make
from agentworld.cli.usage import CommandLineError

AUTO = "auto"
_MIB = 1024 * 1024

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def import_(
    format: Annotated[
        str | None, typer.Argument(help="Name of a format, or auto, which looks at each file.", metavar="FORMAT")
    ] = None,
    paths: Annotated[list[Path] | None, typer.Argument(help="Files, folders, archives.", metavar="PATH...")] = None,
    pool: PoolOption = None,
    channel: Annotated[str, typer.Option("--channel", help="The channel that they go to.")] = "train",
    group: Annotated[str | None, typer.Option("--group", help="Put all into this group.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="The agent's name, instead of the files' own.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Whose data it is, instead of the files' own.")] = None,
    reward_name: Annotated[
        str | None, typer.Option("--reward-name", help="Which reward of a run becomes the primary one.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="Give ids to steps that have none: pocket, qwen3, a folder, ...")
    ] = None,
    keep_thinking: Annotated[
        bool, typer.Option("--keep-thinking", help="Leave what replies of plain chat think in <think> in their texts.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Read at most so many runs.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count only; no pool is needed.")] = False,
    shown: Annotated[int, typer.Option("--notes", min=0, help="How many notes to print, up to 1000.")] = 20,
    max_document: Annotated[
        int, typer.Option("--max-document", min=1, help="MiB of one JSON document, or of one line.")
    ] = 64,
    max_file: Annotated[int, typer.Option("--max-file", min=1, help="MiB of one file, uncompressed.")] = 65536,
    max_archive: Annotated[
        int, typer.Option("--max-archive", min=1, help="MiB of all that is in one archive.")
    ] = 262144,
    max_ratio: Annotated[
        int, typer.Option("--max-ratio", min=1, help="How many times larger than compressed a file may be.")
    ] = 200,
    max_members: Annotated[
        int, typer.Option("--max-members", min=1, help="Files of one archive or folder.")
    ] = 1_000_000,
    formats: Annotated[bool, typer.Option("--formats", help="List the formats, and read nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Bring trajectories of other tools into a pool. Exit code 1 where something was lost, or nothing was found."""
    if formats:
        _list_formats(as_json)
        return
    from agentworld.ingest.finding import check_paths
    from agentworld.ingest.formats import formats as known_formats
    from agentworld.ingest.limits import Limits
    from agentworld.ingest.loader import Importer
    from agentworld.ingest.wholes import Placing

    if format is None or (not paths and format not in (AUTO, *known_formats()) and Path(format).exists()):
        raise CommandLineError("say the format first, or auto", hint="Write agentworld import auto PATH")
    if format not in (AUTO, *known_formats()):
        raise CommandLineError(
            f"there is no format {format!r}",
            path="FORMAT",
            hint="See agentworld import --formats, or write auto",
        )
    if not paths:
        raise CommandLineError("no path is given", path="PATH", hint="Name files, folders or archives")
    check_given("--pool", pool)
    check_paths(paths)
    limits = Limits(
        document_bytes=max_document * _MIB,
        member_bytes=max_file * _MIB,
        archive_bytes=max_archive * _MIB,
        archive_ratio=max_ratio,
        members=max_members,
    )
    placing = Placing(channel=channel, group_id=group, agent=agent, user=user, reward_name=reward_name)
    deriver = None
    if tokenizer is not None:
        from agentworld.ingest.deriving import Deriver

        deriver = Deriver(tokenizer)
    opened = None if dry_run else open_or_make(pool or DEFAULT_POOL)
    stopped = False
    try:
        with showing_progress() as progress:
            importer = Importer(
                opened,
                format,
                placing=placing,
                limits=limits,
                limit=limit,
                deriver=deriver,
                keep_thinking=keep_thinking,
                progress=progress,
            )
            try:
                importer.run(paths)
            except KeyboardInterrupt:
                stopped = True
    finally:
        if opened is not None:
            opened.close()
    report = importer.report
    if opened is not None:
        from agentworld.pool.urls import shown_url

        report.pool, report.channel = shown_url(pool or DEFAULT_POOL), channel
    if as_json:
        report.notes = report.first_notes()
        output.emit_json(report)
    else:
        tell(report, min(shown, 1000))
    if stopped:
        typer.echo("Stopped. The same command goes on: what is stored is known again", err=True)
        raise typer.Exit(130)
    if report.lost or report.total("runs") == report.total("empty"):
        raise typer.Exit(1)


def _list_formats(as_json: bool) -> None:
    from agentworld.ingest.formats import formats

    found = [(name, format.title) for name, format in formats().items()]
    if as_json:
        output.emit_json([{"format": name, "title": title} for name, title in found])
    else:
        output.table(("format", "title"), found, whole=("format",))
