"""`agentworld pool`: checks, collection, deletion on request, backups and Parquet."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentworld.cli import output
from agentworld.cli.durations import seconds
from agentworld.cli.progress import progress_bar
from agentworld.cli.source import DEFAULT_POOL, PoolOption, check_given, open_existing, open_or_make
from agentworld.cli.usage import CommandLineError

if TYPE_CHECKING:
    from agentworld.factory import EmbeddedPool
    from agentworld.pool.keeping import Problem

_SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def check(
    pool: PoolOption = None,
    shallow: Annotated[bool, typer.Option("--shallow", help="Leave out the digests of content.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Verify hashes, counts, references and sequences. Exit code 1 where something is wrong."""
    with _opened(pool) as opened, progress_bar() as progress:
        problems = opened.check(progress=progress, deep=not shallow)
    if as_json:
        output.emit_json(problems)
    else:
        for problem in problems:
            typer.echo(_said(problem))
        typer.echo(f"{len(problems)} problems" if problems else "No problem found")
    if problems:
        raise typer.Exit(1)


def gc(
    pool: PoolOption = None,
    max_age: Annotated[
        str | None, typer.Option("--max-age", help="Collect what ended longer ago, such as 30d (s, m, h, d, w).")
    ] = None,
    max_policy_lag: Annotated[
        int | None, typer.Option("--max-policy-lag", help="Collect what is more versions behind the current policy.")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", help="Collect the oldest until so many steps are left.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option("--max-bytes", help="Collect the oldest until so much content is left, such as 50G.")
    ] = None,
    channel: Annotated[
        list[str] | None, typer.Option("--channel", help="Only of this channel; may be given more than once.")
    ] = None,
    include_waiting: Annotated[
        bool, typer.Option("--include-waiting", help="Also what a consumer has not had yet.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge",
            help="Then rewrite the pool: no file of it holds what is gone. Writers wait, on SQLite 30 s at most.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Collect what retention names, and content that nothing refers to any more."""
    from agentworld.pool.keeping import Retention

    retention = Retention(
        max_age=None if max_age is None else seconds(max_age, "--max-age"),
        max_policy_lag=max_policy_lag,
        max_steps=max_steps,
        max_bytes=None if max_bytes is None else _size(max_bytes),
        channels=tuple(channel) if channel else None,
    )
    with _opened(pool) as opened, progress_bar() as progress:
        done = opened.collect(retention, dry_run=dry_run, include_waiting=include_waiting, progress=progress)
        if purge and not dry_run:
            opened.purge(progress=progress)
    _tell(done, as_json, "would go" if dry_run else "rows")


def delete(
    trajectory_ids: Annotated[list[str] | None, typer.Argument(help="Ids of trajectories.", metavar="ID...")] = None,
    pool: PoolOption = None,
    user: Annotated[str | None, typer.Option("--user", help="Everything of this user instead.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept in the tombstone.")] = None,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge/--no-purge",
            help="Rewrite the pool, so that no file of it holds what is gone. Writers wait, on SQLite 30 s at most.",
        ),
    ] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete trajectories for good, or everything of one user. Beats pins and leases."""
    if bool(trajectory_ids) == bool(user):
        raise CommandLineError("Name trajectories, or --user", hint="Give one of the two")
    if not yes and not sys.stdin.isatty():
        raise CommandLineError("nobody can be asked, as this is no terminal", hint="Give --yes to delete without it")
    what = f"everything of user {user}" if user else f"{len(trajectory_ids or [])} trajectories"
    with _opened(pool) as opened:
        if not yes:
            typer.confirm(output.plain(f"Delete {what} for good?"), abort=True, err=True)
        with progress_bar() as progress:
            if user:
                done = opened.delete_user(user, reason, progress=progress)
            else:
                done = opened.delete_trajectories(trajectory_ids or [], reason, progress=progress)
            if purge:
                opened.purge(progress=progress)
    _tell(done, as_json)


def backup(
    path: Annotated[Path, typer.Argument(help="The archive to write; a file that is not there.", metavar="PATH")],
    pool: PoolOption = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check the archive when it is written.")] = False,
) -> None:
    """Write the whole pool into one archive while it is in use. It opens as a pool itself."""
    with _opened(pool) as opened, progress_bar() as progress:
        opened.backup(path, progress=progress)
    if verify:
        _verify(f"sqlite:///{path}")
    typer.echo(output.plain(f"{path} holds the pool"))


def restore(
    path: Annotated[Path, typer.Argument(help="An archive that `pool backup` wrote.", metavar="PATH")],
    pool: PoolOption = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check the pool when it is restored.")] = False,
) -> None:
    """Make a pool from an archive, on SQLite or PostgreSQL; nothing may be there yet."""
    from agentworld.pool.restore import restore as restored

    check_given("--pool", pool)
    url = pool or DEFAULT_POOL
    with progress_bar() as progress:
        restored(path, url, progress=progress)
    if verify:
        _verify(url)
    typer.echo(output.plain(f"{_shown(url)} holds what {path} held"))


def export(
    path: Annotated[Path, typer.Argument(help="The folder to write; one that is not there.", metavar="PATH")],
    pool: PoolOption = None,
    where: Annotated[str | None, typer.Option("--where", help="Only trajectories that match.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", help="Only of this channel.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="The trajectories of this dataset version.", metavar="VERSION")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="What to write: parquet.")] = "parquet",
    as_json: JsonOption = False,
) -> None:
    """Write trajectories with all that belongs to them as Parquet files."""
    if format != "parquet":
        raise CommandLineError(f"--format {format} is not known", hint="Use parquet")
    with _opened(pool) as opened, progress_bar() as progress:
        manifest = opened.export_parquet(path, where=where, channel=channel, dataset=dataset, progress=progress)
    if as_json:
        output.emit_json(manifest)
    else:
        output.table(("file", "rows"), sorted(manifest.rows.items()), right=("rows",))
        if manifest.media_missing:
            typer.echo(f"{manifest.media_missing} media that messages show are not in the pool, nor in the export")


def import_(
    path: Annotated[Path, typer.Argument(help="A folder that `pool export` wrote.", metavar="PATH")],
    pool: PoolOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read an export into a pool, which is made where it is not there. What is there already stays as it is, so that it
    can be done again.
    """
    from agentworld.pool.parquet.layout import arrow
    from agentworld.pool.parquet.manifest import read_manifest

    arrow()
    read_manifest(path)  # So that no pool is made for what is no export.
    check_given("--pool", pool)
    with open_or_make(pool or DEFAULT_POOL) as opened, progress_bar() as progress:
        done = opened.import_parquet(path, progress=progress)
    _tell(done, as_json)


def _opened(pool: str | None) -> EmbeddedPool:
    check_given("--pool", pool)
    return open_existing(pool or DEFAULT_POOL)


def _verify(url: str) -> None:
    with open_existing(url, migrate=True) as opened, progress_bar() as progress:
        problems = opened.check(progress=progress)
    for problem in problems:
        typer.echo(_said(problem), err=True)
    if problems:
        raise typer.Exit(1)


def _said(problem: Problem) -> str:
    """A problem on one line, with what to do about it."""
    return output.plain(f"{problem.kind}: {problem.table} {problem.key}: {problem.message}. {problem.hint}")


def _shown(url: str) -> str:
    """The URL without its secrets; of where media lie it says nothing, as a restored pool holds them."""
    from agentworld.pool.media.address import split_media
    from agentworld.pool.urls import shown_url

    return shown_url(split_media(url)[0])


def _tell(done: Any, as_json: bool, column: str = "rows") -> None:
    if as_json:
        output.emit_json(done)
        return
    values = [(name.replace("_", " "), getattr(done, name)) for name in done.__struct_fields__]
    rows = [
        (name, ", ".join(value) if isinstance(value, list) else value)
        for name, value in values
        if not isinstance(value, bool)
    ]
    output.table(("", column), [row for row in rows if row[1] not in (0, "")] or [("nothing", 0)])


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kmgt]?)(?:i?b)?", text.lower())
    if found is None:
        raise CommandLineError(f"--max-bytes {text!r} is no size", hint="Write a number of bytes, or with K, M, G or T")
    return int(found[1]) * _SIZES[found[2]]
